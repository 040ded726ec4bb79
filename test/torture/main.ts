/**
 * `npm run torture -- --seed 7 --minutes 10`: breaks everything that can be
 * broken, under load, and judges what is left. Exit 0 when the promise was
 * kept, 1 when it was not, 2 when the run proved nothing, 3 when it could not run.
 */
import { rm } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join, resolve } from 'node:path'
import { Command, InvalidArgumentError, Option } from 'commander'
import { faults } from './faults.ts'
import { renderReport } from './report.ts'
import { type TortureOptions, torture } from './run.ts'

const EXIT = { valid: 0, invalid: 1, unknown: 2 } as const
const CANNOT_RUN = 3

type Flags = Omit<TortureOptions, 'progress' | 'dir'> & { readonly out: string; readonly json: boolean }

const program = new Command('torture')
  .description('Breaks Kafka, Postgres and the service at random under load, and holds the result against the promise.')
  .addOption(
    new Option('--seed <number>', 'which faults come when; a seed repeats the plan')
      .argParser(whole)
      .default(1 + Math.floor(Math.random() * 999_999), 'another each time'),
  )
  .option('--minutes <number>', 'how long things are broken', decimal, 10)
  .option('--faults <names>', `which, of: ${Object.keys(faults).join(', ')}`, names, Object.keys(faults))
  .option('--relays <count>', 'relay processes', whole, 2)
  .option('--consumers <count>', 'consumer processes', whole, 2)
  .addOption(
    new Option('--clients <count>', 'clients at once; more than the machine can serve measure the machine')
      .argParser(whole)
      .default(2 * availableParallelism(), 'two for each core'),
  )
  .option('--secure', 'Kafka over TLS with SCRAM-SHA-512, Postgres over TLS verified in full', false)
  .option('--steady-within <seconds>', 'how soon after a fault all must be steady again', decimal, 15)
  .option('--out <folder>', 'where logs, history and report are left', join('.data', 'torture'))
  .option('--json', 'print the report as JSON', false)

await program.parseAsync()
await main(program.opts<Flags>())

async function main({ out, json, ...flags }: Flags): Promise<void> {
  const foreign = ['DATABASE_URL', 'KAFKA_BROKERS'].filter((name) => process.env[name])
  if (foreign.length > 0) {
    process.stderr.write(
      `${foreign.join(' and ')} is set. This breaks servers: it uses its own and no others. Unset it.\n`,
    )
    process.exitCode = CANNOT_RUN
    return
  }
  const dir = resolve(out, `seed-${flags.seed}`)
  const began = performance.now()
  const progress = (line: string) => {
    const clock = new Date(performance.now() - began).toISOString().slice(11, 19)
    process.stderr.write(`${clock}  ${line}\n`)
  }
  const way = flags.secure ? 'over TLS and SCRAM' : 'in clear'
  progress(
    `seed ${flags.seed}, ${flags.minutes} minutes ${way}, ${flags.faults.length} kinds of faults; leaves everything in ${dir}`,
  )
  try {
    await rm(dir, { recursive: true, force: true })
    const report = await torture({ ...flags, dir, progress })
    process.stdout.write(json ? `${JSON.stringify(report, null, 2)}\n` : `${renderReport(report)}\n`)
    process.exitCode = EXIT[report.verdict.verdict]
  } catch (error) {
    process.stderr.write(`It could not run: ${error instanceof Error ? error.stack : error}\n`)
    process.exitCode = CANNOT_RUN
  }
}

function whole(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('A whole number from 1 is needed.')
  return value
}

function decimal(text: string): number {
  const value = Number(text)
  if (!(value > 0)) throw new InvalidArgumentError('A number above 0 is needed.')
  return value
}

function names(text: string): readonly string[] {
  const given = text.split(',').filter((name) => name !== '')
  const unknown = given.find((name) => !(name in faults))
  if (unknown !== undefined || given.length === 0) {
    throw new InvalidArgumentError(`${unknown ?? 'Nothing'} is none of ${Object.keys(faults).join(', ')}.`)
  }
  return given
}
