/** Programs of this machine. */
import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { inheritedEnv } from './config.ts'

/** Where `program` is on the path; `null` where it is not. */
export function onPath(program: string): string | null {
  const folders = (inheritedEnv().PATH ?? '').split(delimiter).filter((folder) => folder !== '')
  return folders.map((folder) => join(folder, program)).find(canRun) ?? null
}

function canRun(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    return true
  } catch {
    return false
  }
}
