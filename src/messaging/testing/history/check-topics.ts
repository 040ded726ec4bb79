/** What stands on the topics, held against what was committed and what was left out: I3 to I7, I13. */
import type { CommittedEvent, ObservedRecord } from './evidence.ts'
import type { Findings } from './findings.ts'
import type { Indexed } from './index-evidence.ts'

/** I3: every committed event is on its topic, or was set aside with a reason. */
export function checkNothingLost({ evidence, copies, setAside }: Indexed, findings: Findings): void {
  for (const event of evidence.committed) {
    if (copies.has(event.id) || setAside.has(event.id)) continue
    findings.add('I3', `${describe(event)} was committed and is not on ${event.topic}`, about(event))
  }
  for (const { id, reason } of evidence.setAside) {
    if (reason === '') findings.add('I3', `event ${id} was set aside without a reason`, { ids: [id] })
  }
}

/** I4: every record is a committed event, with its key, type, version and bytes. */
export function checkNothingInvented({ evidence, committedById }: Indexed, findings: Findings): void {
  for (const record of evidence.records) {
    const event = record.id === null ? undefined : committedById.get(record.id)
    if (!event) {
      const ids = record.id === null ? [] : [record.id]
      findings.add('I4', `the record at ${place(record)} is no committed event`, { ids, aggregateId: record.key })
      continue
    }
    for (const difference of differences(event, record)) {
      findings.add('I4', `${describe(event)} has another ${difference} at ${place(record)}`, about(event))
    }
  }
}

/**
 * I5: an event lies on the partition that its key's hash gives for one of its
 * topic's counts, and an aggregate never goes back to an earlier count.
 */
export function checkPlacement({ evidence, committedByAggregate, copies }: Indexed, findings: Findings): void {
  const shapes = new Map(evidence.topics.map(({ topic, partitionCounts }) => [topic, partitionCounts]))
  for (const events of committedByAggregate.values()) {
    let reached = 0
    for (const event of events) {
      const counts = shapes.get(event.topic)
      const first = copies.get(event.id)?.[0]
      if (!counts || !first) continue
      const fitting = counts.findIndex(
        (count, index) => index >= reached && partitionOf(event, count) === first.partition,
      )
      if (fitting === -1) {
        const expected = [...new Set(counts.map((count) => partitionOf(event, count)))].join(' or ')
        findings.add(
          'I5',
          `${describe(event)} lies at ${place(first)} and belongs to partition ${expected}`,
          about(event),
        )
      } else reached = fitting
    }
    checkCopies(events, { copies, shapes }, findings)
  }
}

function checkCopies(
  events: readonly CommittedEvent[],
  { copies, shapes }: { copies: Indexed['copies']; shapes: ReadonlyMap<string, readonly number[]> },
  findings: Findings,
): void {
  for (const event of events) {
    const counts = shapes.get(event.topic)
    for (const copy of copies.get(event.id)?.slice(1) ?? []) {
      if (!counts || counts.some((count) => partitionOf(event, count) === copy.partition)) continue
      findings.add('I5', `a copy of ${describe(event)} lies at ${place(copy)}, not on its partition`, about(event))
    }
  }
}

/**
 * I6: within a partition, the first occurrences of an aggregate's events stand
 * in append order, and its versions rise one by one, from 1.
 */
export function checkOrder({ evidence, committedByAggregate, copies, setAside }: Indexed, findings: Findings): void {
  for (const events of committedByAggregate.values()) {
    if (evidence.fromTheStart) checkFirstVersion(events, findings)
    checkVersions(events, findings)
    const latest = new Map<number, { event: CommittedEvent; offset: bigint }>()
    for (const event of events) {
      if (setAside.has(event.id)) continue
      const first = copies.get(event.id)?.[0]
      if (!first) continue
      const before = latest.get(first.partition)
      if (before && before.offset > first.offset) {
        const problem = `${describe(event)} stands at ${place(first)}, before ${describe(before.event)} at offset ${before.offset}`
        findings.add('I6', problem, { ids: [before.event.id, event.id], aggregateId: event.aggregateId })
      } else latest.set(first.partition, { event, offset: first.offset })
    }
  }
}

/** An event that was lost before anything was recorded shows in the version of the next. */
function checkFirstVersion([first]: readonly CommittedEvent[], findings: Findings): void {
  if (first === undefined || first.version === null || first.version === 1) return
  findings.add('I6', `${describe(first)} is the first of its aggregate`, about(first))
}

function checkVersions(events: readonly CommittedEvent[], findings: Findings): void {
  let previous: CommittedEvent | undefined
  for (const event of events) {
    if (previous?.version != null && event.version !== null && event.version !== previous.version + 1) {
      findings.add('I6', `${describe(event)} was appended behind ${describe(previous)}`, {
        ids: [previous.id, event.id],
        aggregateId: event.aggregateId,
      })
    }
    previous = event
  }
}

/** I7: an event has at most as many further copies as things happened that send again. */
export function checkDuplicates({ evidence, committedById, copies }: Indexed, findings: Findings): void {
  for (const [id, records] of copies) {
    if (records.length - 1 <= evidence.disturbances) continue
    const event = committedById.get(id)
    if (!event) continue
    const problem = `${describe(event)} is on the topic ${records.length} times after ${evidence.disturbances} disturbances`
    findings.add('I7', problem, about(event))
  }
}

/** I13: what was declared skipped stands nowhere: neither before the declaration, or it was published, nor afterwards. */
export function checkSkipped({ evidence, committedById, copies }: Indexed, findings: Findings): void {
  for (const id of evidence.skipped) {
    const event = committedById.get(id)
    const [first] = copies.get(id) ?? []
    if (!event) findings.add('I13', `event ${id} was skipped and never committed`, { ids: [id] })
    else if (first) findings.add('I13', `${describe(event)} was skipped and stands at ${place(first)}`, about(event))
  }
}

function differences(event: CommittedEvent, record: ObservedRecord): string[] {
  const pairs: [string, unknown, unknown][] = [
    ['topic', event.topic, record.topic],
    ['key', event.aggregateId, record.key],
    ['type', event.type, record.type],
    ['version', event.version, record.version],
    ['payload', event.payloadHash, record.payloadHash],
  ]
  return pairs.filter(([, committed, observed]) => committed !== observed).map(([name]) => name)
}

function partitionOf(event: CommittedEvent, count: number): number {
  return (event.keyHash & 0x7fffffff) % count
}

function describe(event: CommittedEvent): string {
  const version = event.version === null ? '' : ` version ${event.version}`
  return `${event.aggregateType} ${event.aggregateId}${version} (${event.type}, ${event.id})`
}

function place({ topic, partition, offset }: ObservedRecord): string {
  return `${topic}, partition ${partition}, offset ${offset}`
}

function about(event: CommittedEvent): { ids: readonly string[]; aggregateId: string } {
  return { ids: [event.id], aggregateId: event.aggregateId }
}
