/** `npm run bench -- drain` and `-- telemetry`: figures on stdout, progress on stderr, exit 1 when a contender failed the gate, or a target was missed. */
import { Command, InvalidArgumentError } from 'commander'
import { ours, peers } from './contenders.ts'
import { benchDrain } from './drain.ts'
import { renderReport, reportDrains, type Shape } from './report.ts'
import { startCollector, telemetryContenders, telemetryDefaults } from './telemetry.ts'
import { passes, renderTelemetry, reportTelemetry } from './telemetry-report.ts'

interface DrainFlags {
  readonly rounds: number
  readonly events: number
  readonly bytes: number
  readonly perAggregate: number
  readonly partitions: number
  readonly peers: readonly (keyof typeof peers)[]
  readonly json: boolean
}

const program = new Command('bench').description('Measures graphql-outbox beside others, on servers of its own.')

program
  .command('drain')
  .description('How fast a backlog is drained. No figure is given for a relay that loses, doubles, alters or reorders.')
  .option('--rounds <count>', 'paired rounds; the contenders take turns', positive, 9)
  .option('--events <count>', 'events of a backlog', positive, 50_000)
  .option('--bytes <count>', 'bytes of a payload, about', positive, 440)
  .option('--per-aggregate <count>', 'events of an aggregate', positive, 10)
  .option('--partitions <count>', 'partitions of the topic', positive, 8)
  .option('--peers <names>', `whom to compare with, of: ${Object.keys(peers).join(', ')}`, peerNames, ['textbook-100'])
  .option('--json', 'print JSON', false)
  .action(async (flags: DrainFlags) => {
    const contenders = [ours, ...flags.peers.flatMap((name) => peers[name] ?? [])]
    const drains = await benchDrain({ ...flags, warmEvents: 2_000, contenders, progress })
    const report = reportDrains(drains, { ours: ours.name, shape: shapeOf(flags) })
    process.stdout.write(flags.json ? `${JSON.stringify(report, null, 2)}\n` : `${renderReport(report)}\n`)
    if (report.refused.length > 0) process.exitCode = 1
  })

program
  .command('telemetry')
  .description('What metrics and traces cost the relay: CPU of an event, with none, with metrics, 1 % and all traced.')
  .option('--rounds <count>', 'paired rounds; the settings take turns', positive, telemetryDefaults.rounds)
  .option('--events <count>', 'events of a backlog', positive, telemetryDefaults.events)
  .option('--bytes <count>', 'bytes of a payload, about', positive, 440)
  .option('--per-aggregate <count>', 'events of an aggregate', positive, 10)
  .option('--partitions <count>', 'partitions of the topic', positive, 8)
  .option('--gate', 'exit 1 also when telemetry costs more than it may, or too few rounds tell', false)
  .option('--json', 'print JSON', false)
  .action(async (flags: Omit<DrainFlags, 'peers'> & { readonly gate: boolean }) => {
    await using collector = await startCollector()
    const contenders = telemetryContenders(collector.url)
    const drains = await benchDrain({ ...telemetryDefaults, ...flags, contenders, progress })
    const report = reportTelemetry(drains, shapeOf(flags))
    process.stdout.write(`${flags.json ? JSON.stringify(report, null, 2) : renderTelemetry(report)}\n`)
    if (report.faults.length > 0 || (flags.gate && !passes(report))) process.exitCode = 1
  })

await program.parseAsync()

function progress(line: string): void {
  process.stderr.write(`${line}\n`)
}

function shapeOf({ events, bytes, perAggregate, partitions, rounds }: Omit<DrainFlags, 'peers'>): Shape {
  return { events, payloadBytes: bytes, eventsPerAggregate: perAggregate, partitions, rounds }
}

function positive(text: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < 1) throw new InvalidArgumentError('A whole number from 1 is needed.')
  return value
}

function peerNames(text: string): readonly string[] {
  const names = text.split(',').filter((name) => name !== '')
  const unknown = names.find((name) => !(name in peers))
  if (unknown !== undefined) throw new InvalidArgumentError(`${unknown} is none of ${Object.keys(peers).join(', ')}.`)
  return names
}
