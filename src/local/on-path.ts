/** Programs of this machine. */
import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join, resolve, sep } from 'node:path'
import { inheritedEnv } from './config.ts'

/** Where `program` is on the path; `null` where it is not. */
export function onPath(program: string): string | null {
  const folders = (inheritedEnv().PATH ?? '').split(delimiter).filter((folder) => folder !== '')
  return folders.map((folder) => join(folder, program)).find(canRun) ?? null
}

/** Where `program` is, by its path or on the path, as a shell finds it; `null` where it is not, or cannot be run. */
export function findProgram(program: string): string | null {
  if (!program.includes(sep)) return onPath(program)
  return canRun(resolve(program)) ? program : null
}

function canRun(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    // Of a folder it says that it may be entered.
    return statSync(file).isFile()
  } catch {
    return false
  }
}
