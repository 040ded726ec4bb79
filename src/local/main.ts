/**
 * `npm start`: Postgres, Kafka, Jaeger where it can be had, and the service,
 * until Ctrl-C. `npm start -- PROGRAM ARGUMENT…` runs that in the service's
 * place, with the same environment.
 */
import { fileURLToPath } from 'node:url'
import { Command } from 'commander'
import { readLocalConfig } from './config.ts'
import { runStack } from './stack.ts'
import { StackError } from './stack-error.ts'

const stop = new AbortController()
const force = new AbortController()
const say = (text: string) => console.log(text)
const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url))

// A terminal that was closed cannot be written to, and that is no reason to leave servers behind.
process.stdout.on('error', () => {})
process.stderr.on('error', () => {})
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, onSignal)

let firstSignalAt = Number.POSITIVE_INFINITY

/** One Ctrl-C may arrive twice, from the terminal and from npm: only one a while later is a second one. */
function onSignal(): void {
  if (!stop.signal.aborted) {
    firstSignalAt = performance.now()
    say('Stopping, the service first. Ctrl-C again ends all at once.')
    stop.abort()
  } else if (performance.now() - firstSignalAt > 500) {
    force.abort()
    // What does not end by itself now is ended by its guard.
    setTimeout(() => process.exit(130), 2_000).unref()
  }
}

const HELP = `
Settings are environment variables; docs/options.md has them all. The most wanted:
  PORT, ADMIN_PORT              other ports than 4000 and 4001
  DATABASE_URL, KAFKA_BROKERS   servers of yours in place of the embedded ones
  OTEL_EXPORTER_OTLP_ENDPOINT   where traces go in place of the local Jaeger
  ROLES                         what the service does: api, relay, consumer
  DATA_DIR                      where the embedded servers keep their data; default .data

A program that ends with exit code 0 ends the start with 0.`

const command = new Command('npm start --')
  .description('Postgres, Kafka, Jaeger where it can be had, and the service, until Ctrl-C.')
  .argument('[program]', "what runs in the service's place, with the same environment")
  .argument('[arguments...]', 'what it is given')
  .passThroughOptions()
  .addHelpText('after', HELP)
  .parse()
const [program, ...args] = command.args

function serviceCommand(): readonly [string, ...string[]] {
  if (program !== undefined) return [program, ...args]
  return [process.execPath, '--import', path('../service/telemetry.ts'), path('../service/main.ts')]
}

async function main(): Promise<number> {
  try {
    await runStack({
      config: readLocalConfig({ service: program === undefined }),
      service: serviceCommand(),
      serviceName: program === undefined ? 'The service' : `The program ${program}`,
      say,
      stop: stop.signal,
      force: force.signal,
    })
    if (force.signal.aborted) return 130
    say('Stopped.')
    return 0
  } catch (error) {
    console.error(error instanceof StackError ? error.message : error)
    return 1
  }
}

// Something may still be starting, or Maven fetching: it must not keep the process.
process.exit(await main())
