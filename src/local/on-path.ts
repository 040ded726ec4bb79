/** Programs of this machine. */
import { accessSync, constants, statSync } from 'node:fs'
import { delimiter, join, resolve, sep } from 'node:path'
import { inheritedEnv } from './config.ts'

/** Where `program` is on the path; `null` where it is not. */
export function onPath(program: string): string | null {
  const folders = (inheritedEnv().PATH ?? '').split(delimiter).filter((folder) => folder !== '')
  return folders.map((folder) => join(folder, program)).find(canRun) ?? null
}

/** Why `program`, by its path or on the path as a shell finds it, cannot be run, with the way out; `null` where it can. */
export function programProblem(program: string): string | null {
  const file = resolve(program)
  if (program.includes(sep) ? canRun(file) : onPath(program) !== null) return null
  if (!isFile(file)) return `The program ${program} is not there.`
  return `The program ${program} is a file that cannot be run by itself. If it is for Node: npm start -- node ${program}`
}

function canRun(file: string): boolean {
  try {
    accessSync(file, constants.X_OK)
    // Of a folder it says that it may be entered.
    return isFile(file)
  } catch {
    return false
  }
}

function isFile(file: string): boolean {
  return statSync(file, { throwIfNoEntry: false })?.isFile() ?? false
}
