/** `npm run bench -- drain` and `-- telemetry`: figures on stdout, progress on stderr, exit 1 when a contender failed the gate. */
import { Command, InvalidArgumentError } from 'commander'
import { ours, peers } from './contenders.ts'
import { benchDrain } from './drain.ts'
import { renderReport, reportDrains } from './report.ts'
import {
  renderTelemetry,
  reportTelemetry,
  startCollector,
  TELEMETRY_WARM_EVENTS,
  telemetryContenders,
} from './telemetry.ts'

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
    const progress = (line: string) => process.stderr.write(`${line}\n`)
    const drains = await benchDrain({ ...flags, warmEvents: 2_000, contenders, progress })
    const { events, bytes: payloadBytes, perAggregate: eventsPerAggregate, partitions, rounds } = flags
    const shape = { events, payloadBytes, eventsPerAggregate, partitions, rounds }
    const report = reportDrains(drains, { ours: ours.name, shape })
    process.stdout.write(flags.json ? `${JSON.stringify(report, null, 2)}\n` : `${renderReport(report)}\n`)
    if (report.refused.length > 0) process.exitCode = 1
  })

program
  .command('telemetry')
  .description('What metrics and traces cost the relay: CPU of an event, with none, with metrics, 1 % and all traced.')
  .option('--rounds <count>', 'paired rounds; the settings take turns', positive, 9)
  .option('--events <count>', 'events of a backlog', positive, 50_000)
  .option('--bytes <count>', 'bytes of a payload, about', positive, 440)
  .option('--per-aggregate <count>', 'events of an aggregate', positive, 10)
  .option('--partitions <count>', 'partitions of the topic', positive, 8)
  .option('--json', 'print JSON', false)
  .action(async (flags: Omit<DrainFlags, 'peers'>) => {
    await using collector = await startCollector()
    const contenders = telemetryContenders(collector.url)
    const progress = (line: string) => process.stderr.write(`${line}\n`)
    const warmEvents = TELEMETRY_WARM_EVENTS
    const drains = await benchDrain({ ...flags, warmEvents, contenders, progress, untilStopped: true })
    const faults = drains.flatMap(({ contender, faults: found }) => found.map((fault) => `${contender}: ${fault}`))
    if (faults.length > 0) {
      process.stderr.write(`NO FIGURES, the gate failed\n${faults.join('\n')}\n`)
      process.exitCode = 1
      return
    }
    const costs = reportTelemetry(drains)
    process.stdout.write(`${flags.json ? JSON.stringify(costs, null, 2) : renderTelemetry(costs, flags.rounds)}\n`)
  })

await program.parseAsync()

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
