/**
 * Marks the records of aborted transactions in what a fetch has brought.
 *
 * kafkajs lets some of them through: it takes the brokers' list of aborted
 * transactions for sorted by where they begin, enters one of them a record at
 * most, and ends one at any record whose key looks like a marker's. So it is
 * given records that nobody is to see, as control records, and an empty list.
 */

/** A record of a fetch, as kafkajs decodes it. */
interface FetchedRecord {
  readonly offset: string
  readonly isControlRecord?: boolean
  /** None in batches of the old formats, which know no transactions. */
  readonly batchContext?: { readonly producerId: string; readonly inTransaction: boolean }
}

interface FetchedPartition {
  readonly messages: readonly FetchedRecord[]
  readonly abortedTransactions?: readonly { readonly producerId: string; readonly firstOffset: string }[] | null
}

interface Fetched {
  readonly responses: readonly { readonly partitions: readonly FetchedPartition[] }[]
}

/** The same answer, with the records of aborted transactions as control records. */
export function withAbortedMarked(answer: unknown): unknown {
  const fetched = answer as Fetched
  return {
    ...fetched,
    responses: fetched.responses.map((topic) => ({ ...topic, partitions: topic.partitions.map(markAborted) })),
  }
}

function markAborted(partition: FetchedPartition): FetchedPartition {
  const { messages, abortedTransactions } = partition
  if (!abortedTransactions?.length) return partition
  const starts = abortedTransactions
    .map(({ producerId, firstOffset }) => ({ producerId, firstOffset: BigInt(firstOffset) }))
    .toSorted((a, b) => Number(b.firstOffset < a.firstOffset) - Number(a.firstOffset < b.firstOffset))
  const aborted = new Set<string>()
  const marked = messages.map((message) => {
    while (starts[0] !== undefined && starts[0].firstOffset <= BigInt(message.offset)) {
      aborted.add(starts[0].producerId)
      starts.shift()
    }
    const { producerId, inTransaction } = message.batchContext ?? { producerId: '', inTransaction: false }
    if (message.isControlRecord) aborted.delete(producerId)
    else if (inTransaction && aborted.has(producerId)) return { ...message, isControlRecord: true }
    return message
  })
  return { ...partition, messages: marked, abortedTransactions: [] }
}
