/** The rules of the Kafka driver. */
import type { Mutation } from './mutation.ts'

const PRODUCER = 'src/messaging/kafka/partition-producer.ts'
const WRITER = 'src/messaging/kafka/partition-writer.ts'
const PUBLISHER = 'src/messaging/kafka/publisher.ts'
const READER = 'src/messaging/kafka/partition-reader.ts'

const FAULTS = 'test/messaging/kafka/publisher-faults.test.ts'
const RULES = 'test/messaging/kafka/publisher-rules.test.ts'
const CONTRACT = 'test/messaging/kafka/contract.test.ts'

export const DRIVER: readonly Mutation[] = [
  {
    name: 'driver: a batch of unknown outcome is not sticky',
    edits: [
      { file: WRITER, find: 'if (maybeStored) this.#retire()', replace: '' },
      {
        file: WRITER,
        find: '// The send goes on in kafkajs, retries and all, unless it is cut off.\n        this.#retire()',
        replace: '',
      },
    ],
    test: RULES,
    title: 'another batch goes over another producer once one of unknown outcome was given up',
  },
  {
    name: 'driver: offset of the answer not checked',
    edits: [
      {
        file: PRODUCER,
        find: 'answer.baseOffset === undefined || BigInt(answer.baseOffset) < this.#nextOffset',
        replace: 'answer.baseOffset === undefined',
      },
    ],
    test: FAULTS,
    title: 'takes no answer for an acknowledgement that names an offset from before',
  },
  {
    name: 'driver: no baseline before the first send',
    edits: [
      {
        file: PRODUCER,
        find: "this.#nextOffset = await partitionEdge(this.#cluster, this.#where, 'end')",
        replace: 'void partitionEdge',
      },
    ],
    test: RULES,
    title: 'a first answer that names an offset from before the producer is no acknowledgement',
  },
  {
    name: 'driver: producer not retired',
    edits: [{ file: WRITER, find: 'if (last.retire) this.#retire()', replace: '' }],
    test: FAULTS,
    title: 'goes on with a new producer after OUT_OF_ORDER_SEQUENCE_NUMBER',
  },
  {
    name: 'driver: partition not checked',
    edits: [{ file: PRODUCER, find: 'if (partition < 0 || partition >= count)', replace: 'if (count < 0)' }],
    test: CONTRACT,
    title: 'refuses a partition that the topic does not have',
  },
  {
    name: 'driver: several requests for one partition',
    edits: [{ file: PUBLISHER, find: 'if (inFlight.has(place)) throw', replace: 'if (place === null) throw' }],
    test: CONTRACT,
    title: 'refuses a second batch for a partition while one is on its way',
  },
  {
    name: 'driver: a producer goes on when its numbering ends',
    edits: [{ file: WRITER, find: 'if (this.#producer?.it.exhausted) this.#retire()', replace: '' }],
    test: RULES,
    title: 'goes on with a new producer before the numbering of its records wraps around',
  },
  {
    name: 'driver: two partitions in one request',
    edits: [
      {
        file: PRODUCER,
        find: 'const groups = { [partition]: list }',
        replace: 'const groups = { [partition]: list, [partition ^ 1]: list.slice(0, 1) }',
      },
      {
        file: PRODUCER,
        find: 'answer === undefined || answers.length !== 1',
        replace: 'answer === undefined',
      },
      {
        file: PRODUCER,
        find: 'answer.topicName !== topic || answer.partition !== partition',
        replace: 'answer.topicName !== topic',
      },
    ],
    test: RULES,
    title: 'a request carries records of one partition, however many batches are on their way',
  },
  {
    name: 'driver: a new topic has the partitions that a broker has heard of',
    edits: [
      {
        file: 'src/messaging/kafka/topics.ts',
        find: 'const leastCount = isMade ? partitionCount : 1',
        replace: 'const leastCount = isMade ? 1 : 1',
      },
    ],
    test: 'test/messaging/kafka/publisher-faults.test.ts',
    title: 'makes a topic with all of its partitions although a broker has heard of 1 of them',
  },
  {
    name: 'driver: sockets left open on give-up',
    edits: [{ file: WRITER, find: 'producer.it.cutOff()', replace: '' }],
    test: FAULTS,
    title: 'sends nothing more once it has given a batch up',
  },
  {
    name: 'driver: an unknown outcome called refused',
    edits: [{ file: WRITER, find: "outcome: maybeStored ? 'unknown' : 'refused'", replace: "outcome: 'refused'" }],
    test: FAULTS,
    title: 'stores a batch of the same size after one of unknown outcome was given up',
  },
  {
    name: 'driver: a leader that has lost the partition taken to have stored nothing',
    edits: [
      {
        file: 'src/messaging/kafka/failures.ts',
        find: "NOT_LEADER_FOR_PARTITION: { kind: 'outage', ...perhaps }",
        replace: "NOT_LEADER_FOR_PARTITION: { kind: 'outage', ...definitely }",
      },
    ],
    test: RULES,
    title: 'a batch that a leader may have stored before it lost the partition is of unknown outcome',
  },
  {
    name: 'driver: records not checked',
    edits: [
      {
        file: 'src/messaging/kafka/checked-records.ts',
        find: "if (typeof text === 'string' && text.isWellFormed()) return Buffer.byteLength(text)",
        replace: 'if (text !== undefined) return Buffer.byteLength(String(text))',
      },
    ],
    test: CONTRACT,
    title: 'refuses as a record what is neither text nor bytes',
  },
  {
    name: 'driver: offset committed before the effect',
    edits: [
      {
        file: READER,
        find: 'const outcome = await this.#host.subscription.deliver({',
        replace:
          'this.#host.finished(this.where, beyond)\n      const outcome = await this.#host.subscription.deliver({',
      },
    ],
    test: CONTRACT,
    title: 'commits what is finished, never more, and goes on from there',
  },
  {
    name: 'driver: stored offset not asked for',
    edits: [
      {
        file: READER,
        find: "asked === 'earliest' || committed === null ? start : lowerOf(asked, committed)",
        replace: 'committed ?? start',
      },
    ],
    test: 'test/messaging/consumer/kafka.test.ts',
    title: 'a database restored from before gets again what it has forgotten',
  },
  {
    name: 'driver: records of aborted transactions as kafkajs finds them',
    edits: [{ file: 'src/messaging/kafka/mend.ts', find: '[FETCH, withAbortedMarked],', replace: '' }],
    test: 'test/messaging/kafka/subscriber-faults.test.ts',
    title: 'hands out nothing of aborted transactions that overlap',
  },
  {
    name: 'driver: a commit that failed waits for the next event',
    edits: [{ file: 'src/messaging/kafka/membership.ts', find: 'void this.#committer.flush()', replace: '' }],
    test: 'test/messaging/kafka/subscriber-faults.test.ts',
    title: 'a commit that has failed is repeated although nothing more comes',
  },
  {
    name: 'driver: a group that remembers nothing begins where the application says',
    edits: [
      {
        file: READER,
        find: "asked === 'earliest' || committed === null ? start : lowerOf(asked, committed)",
        replace: "asked === 'earliest' ? start : committed === null ? asked : lowerOf(asked, committed)",
      },
    ],
    test: 'test/messaging/kafka/subscriber-faults.test.ts',
    title: 'delivers a topic that was made anew and has grown past what is remembered from its first record',
  },
  {
    name: 'driver: ids of joins that came to nothing stay in the group',
    edits: [{ file: 'src/messaging/kafka/membership.ts', find: 'context.memberIds.guard(cluster)', replace: '' }],
    test: 'test/messaging/kafka/cluster.test.ts',
    title: 'a group whose brokers were away, and whose topic has grown meanwhile, waits for no member that is gone',
  },
]
