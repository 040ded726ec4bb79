/** What consumers made of the records: I8 and I9. */
import type { ConsumerEvidence } from './evidence.ts'
import type { Findings } from './findings.ts'
import type { Indexed } from './index-evidence.ts'

/** I8: one effect and one inbox row for each event of a consumer's topics, none for anything else. */
export function checkEffects({ evidence, committedById, copies }: Indexed, findings: Findings): void {
  for (const consumer of evidence.consumers) {
    const processed = new Set(consumer.processed)
    const excused = new Set(consumer.deadLetters)
    checkOnce(consumer, 'inbox row', consumer.processed, findings)
    if (consumer.effects) checkOnce(consumer, 'effect', consumer.effects, findings)
    const effects = consumer.effects && new Set(consumer.effects)

    for (const id of copies.keys()) {
      const event = committedById.get(id)
      if (!event || !consumer.topics.includes(event.topic)) continue
      if (excused.has(id) || consumer.ignoredTypes.includes(event.type)) continue
      const where = { ids: [id], aggregateId: event.aggregateId }
      if (!processed.has(id)) findings.add('I8', `${consumer.consumer} has no inbox row for event ${id}`, where)
      if (effects && !effects.has(id)) findings.add('I8', `${consumer.consumer} has no effect of event ${id}`, where)
    }
    for (const id of new Set([...consumer.processed, ...(consumer.effects ?? [])])) {
      if (!committedById.has(id))
        findings.add('I8', `${consumer.consumer} processed ${id}, never committed`, { ids: [id] })
    }
  }
  for (const { name, expected, actual } of evidence.sums) {
    if (String(expected) !== String(actual)) {
      findings.add('I8', `${name} is ${actual}; the committed events, each taken once, give ${expected}`)
    }
  }
}

function checkOnce({ consumer }: ConsumerEvidence, what: string, ids: readonly string[], findings: Findings): void {
  const seen = new Set<string>()
  for (const id of ids) {
    if (seen.has(id)) findings.add('I8', `${consumer} has more than one ${what} of event ${id}`, { ids: [id] })
    seen.add(id)
  }
}

/** I9: below a group's committed offset every record is processed, set aside, or of a type without handler. */
export function checkOffsets({ evidence }: Indexed, findings: Findings): void {
  for (const consumer of evidence.consumers) {
    const finished = new Set([...consumer.processed, ...consumer.deadLetters])
    const committed = new Map(
      consumer.committedOffsets.map(({ topic, partition, offset }) => [`${topic} ${partition}`, offset]),
    )
    for (const record of evidence.records) {
      const offset = committed.get(`${record.topic} ${record.partition}`)
      if (offset === undefined || record.offset >= offset || record.id === null) continue
      if (finished.has(record.id) || (record.type !== null && consumer.ignoredTypes.includes(record.type))) continue
      const problem = `${consumer.consumer} committed offset ${offset} of ${record.topic}, partition ${record.partition}, and has not finished offset ${record.offset}`
      findings.add('I9', problem, { ids: [record.id], aggregateId: record.key })
    }
  }
}
