/**
 * One kafkajs producer, for one topic-partition: what it says was stored, was.
 *
 * A producer of its own for each partition, since kafkajs shares too much
 * within one: a lock for each broker that lets one silent partition hold up
 * the rest, one bad topic's metadata for all, one producer id whose loss hits
 * every partition. It also makes giving up exact: this producer's sockets
 * carry nobody else's records.
 */
import type { Message, Producer } from 'kafkajs'
import type { Clock } from '../lifecycle/clock.ts'
import { isOver, type Term } from '../lifecycle/term.ts'
import type { TopicPartition } from '../transport.ts'
import { createClient, INNER_RETRY, PRODUCE_TIMEOUT_MS } from './client.ts'
import { DriverFailure, understand } from './failures.ts'
import { type ClusterInside, partitionEdge, touchBrokers, withCluster } from './inside.ts'
import { mend } from './mend.ts'
import type { ResolvedPublisherOptions } from './publisher-options.ts'
import type { Sockets } from './sockets.ts'

const PRODUCE = 0

/** Milliseconds for a given-up producer to close in good order; its sockets are gone already. */
const CLOSE_MS = 3_000

/** An open producer and what is known of its partition. */
export class PartitionProducer {
  readonly #where: TopicPartition
  readonly #maxRecords: number
  readonly #producer: Producer
  readonly #cluster: ClusterInside
  readonly #sockets: Sockets
  #nextOffset = 0n
  #records = 0
  #doubts = 0
  #term: Term = { until: Number.NEGATIVE_INFINITY, untilTime: Number.NEGATIVE_INFINITY }
  #sending: Promise<unknown> = Promise.resolve()
  #closing: Promise<void> | null = null

  constructor(where: TopicPartition, options: ResolvedPublisherOptions, clock: Clock) {
    const { kafka, sockets } = createClient(options)
    const { client, cluster } = withCluster(kafka, () =>
      kafka.producer({
        idempotent: true,
        allowAutoTopicCreation: false,
        maxInFlightRequests: 1,
        retry: INNER_RETRY,
        // The partition is always given; named, so that kafkajs does not warn of its own choice.
        createPartitioner: () => () => where.partition,
      }),
    )
    mend(cluster, {
      admit: (apiKey) => {
        if (apiKey !== PRODUCE || !isOver(this.#term, clock)) return
        throw new DriverFailure('outage', 'DELIVERY_TIMEOUT', 'The time to send this batch is over')
      },
      sent: (apiKey, answer) => {
        if (apiKey === PRODUCE) this.#follow(answer)
      },
    })
    this.#where = where
    this.#maxRecords = options.maxProducerRecords
    this.#producer = client
    this.#cluster = cluster
    this.#sockets = sockets
  }

  /**
   * How many requests the broker may have carried out without our knowing: on
   * their way, or ended without an answer that settles it. Unchanged by a send
   * that failed: nothing of it was stored.
   */
  get doubts(): number {
    return this.#doubts
  }

  /** True once so many records have passed that this producer must not go on. */
  get exhausted(): boolean {
    return this.#records >= this.#maxRecords
  }

  /**
   * Connects, sees that the partition exists, and takes the partition's end as
   * the least offset that a later answer may name. Rejects with whatever
   * failed; the producer is of no use then.
   */
  async open(): Promise<void> {
    const { topic, partition } = this.#where
    // The topic first: without one kafkajs would load the metadata of all.
    await this.#cluster.addTargetTopic(topic)
    const count = this.#cluster.findTopicPartitionMetadata(topic).length
    if (partition < 0 || partition >= count) {
      throw new DriverFailure(
        'destination',
        'PARTITION_UNKNOWN',
        `${topic} has ${count} partitions, none is ${partition}`,
      )
    }
    await this.#producer.connect()
    this.#nextOffset = await partitionEdge(this.#cluster, this.#where, 'end')
  }

  /**
   * Sends `messages` as one record batch and resolves to the offset of the
   * first, once all in-sync replicas have it.
   *
   * The same messages may be sent again after a failure: they carry the same
   * numbers, and the broker knows them. Others may not: the broker would take
   * them for the ones before, answer that all is well and drop them. The check
   * of the answer catches that, whatever its reason.
   *
   * No request leaves once `term` is over, be it that this process was frozen
   * until then: nobody reckons with these messages any more.
   */
  async send(messages: readonly Message[], term: Term): Promise<bigint> {
    const { topic, partition } = this.#where
    this.#term = term
    const sending = this.#producer.send({
      topic,
      messages: grouped(messages, partition),
      acks: -1,
      timeout: PRODUCE_TIMEOUT_MS,
    })
    this.#sending = sending.catch(() => {})
    const answers = await sending

    const baseOffset = this.#check(answers)
    this.#nextOffset = baseOffset + BigInt(messages.length)
    this.#records += messages.length
    return baseOffset
  }

  #check(answers: Awaited<ReturnType<Producer['send']>>): bigint {
    const { topic, partition } = this.#where
    const [answer] = answers
    const problem =
      answer === undefined || answers.length !== 1
        ? `${answers.length} entries`
        : answer.topicName !== topic || answer.partition !== partition
          ? `an entry for ${answer.topicName}, partition ${answer.partition}`
          : answer.errorCode !== 0
            ? `error code ${answer.errorCode}`
            : answer.baseOffset === undefined || BigInt(answer.baseOffset) < this.#nextOffset
              ? `offset ${answer.baseOffset}, below ${this.#nextOffset}`
              : null
    if (problem !== null || answer?.baseOffset === undefined) {
      this.#doubts += 1
      const message = `Kafka's answer for ${topic}, partition ${partition} has ${problem}`
      throw new DriverFailure('outage', 'ANSWER_CHECK_FAILED', message, { definite: false })
    }
    return BigInt(answer.baseOffset)
  }

  /** kafkajs repeats by itself and tells of its last try alone; whether an earlier one was stored is seen here. */
  #follow(answer: Promise<unknown>): void {
    this.#doubts += 1
    answer.then(
      () => {
        this.#doubts -= 1
      },
      (error: unknown) => {
        if (understand(error).definite) this.#doubts -= 1
      },
    )
  }

  /** Keeps quiet connections from being closed for their silence. Never rejects. */
  async touch(): Promise<void> {
    await touchBrokers(this.#cluster)
  }

  /** Gives the producer up: nothing leaves it any more, a send that is being retried included. */
  cutOff(): void {
    this.#sockets.cutOff()
  }

  /** Closes the connections, by force if they do not close in time. Never rejects. Safe to call twice. */
  close(): Promise<void> {
    this.#closing ??= this.#close()
    return this.#closing
  }

  async #close(): Promise<void> {
    await this.#sending
    const timer = setTimeout(() => this.cutOff(), CLOSE_MS)
    await this.#producer.disconnect().catch(() => {})
    clearTimeout(timer)
    this.cutOff()
  }
}

/**
 * kafkajs groups messages by partition with a `reduce` that copies the group
 * for each of them, quadratic in the batch. These are one group already. Were
 * the list copied on the way, kafkajs would group it itself, as ever.
 */
function grouped(messages: readonly Message[], partition: number): Message[] {
  const list = [...messages]
  const groups = { [partition]: list }
  return Object.defineProperty(list, 'reduce', { value: () => groups })
}
