/**
 * `npm test`: the tests of parts, then those of whole processes. The second run
 * follows whatever the first one found, so that one look shows everything;
 * fails when either has failed. Arguments go to both, as jest's own.
 */
import { spawnSync } from 'node:child_process'

const RUNS = ['test:parts', 'test:system']

const failed: string[] = []
for (const run of RUNS) {
  const { status, signal, error } = spawnSync('npm', ['run', run, '--', ...process.argv.slice(2)], { stdio: 'inherit' })
  if (error) throw error
  // Ended from outside: whoever did that wants no second run.
  if (signal !== null) process.exit(1)
  if (status !== 0) failed.push(run)
}
if (failed.length > 0) {
  console.error(`Failed: ${failed.map((run) => `npm run ${run}`).join(', ')}`)
  process.exitCode = 1
}
