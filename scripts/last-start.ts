/** What `npm start` of this folder has told its service, for scripts that look at it. */
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { parseEnv } from 'node:util'

/** The folder of its data. `DATA_DIR`; default `.data` in the working directory. */
export const dataDir = resolve(process.env.DATA_DIR || '.data')

/** The variables of the start that runs now; none where none does. */
export function lastStart(): NodeJS.Dict<string> {
  try {
    return parseEnv(readFileSync(join(dataDir, 'env'), 'utf8'))
  } catch {
    return {}
  }
}
