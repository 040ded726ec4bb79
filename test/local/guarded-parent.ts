/** Starts a guarded program and prints its process id. */
import { startGuarded } from '../../src/local/guarded-process.ts'

const [logFile = '', ...command] = process.argv.slice(2)
const { pid } = startGuarded({
  command: command as [string, ...string[]],
  logFile,
  stopSignal: 'SIGTERM',
  orphanGraceSeconds: 1,
})
console.log(`pid ${pid}.`)
