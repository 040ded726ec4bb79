/** What tests of `npm start` begin with: a folder, ports, and a small program in the service's place. */
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePorts } from '../../src/local/free-ports.ts'
import { type Program, runProgram } from './processes.ts'

/** The small program. */
export const service = fileURLToPath(new URL('fake-service.ts', import.meta.url))
/** Servers that nobody asks: the small program only says what it was given. */
export const elsewhere = { DATABASE_URL: 'postgres://elsewhere/db', KAFKA_BROKERS: 'elsewhere:9092' }
/** What a start says at its end. */
export const READY = 'Try it: npm run demo'

/** A data folder and two ports, for any number of starts. */
export async function place() {
  const dir = await mkdtemp(join(tmpdir(), 'start-'))
  await chmod(dir, 0o755)
  const [port, adminPort] = await freePorts(2)
  const env = {
    DATA_DIR: join(dir, 'data'),
    PORT: String(port),
    ADMIN_PORT: String(adminPort),
    // No Jaeger: it would be built where there is none.
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1',
    DATABASE_URL: '',
    KAFKA_BROKERS: '',
  }
  return { dir, env, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) }
}

/** Starts it all, the small program included. */
export function start(env: Readonly<Record<string, string>>): Program {
  return runProgram('src/local/main.ts', [process.execPath, service], env)
}
