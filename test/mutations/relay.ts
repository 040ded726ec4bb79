/** The fences of the relay, and what keeps a key's events in order on the way out. */
import type { Mutation } from './mutation.ts'

const OUTBOX = 'src/messaging/relay/outbox-queries.ts'
const LEASES = 'src/messaging/relay/lease-queries.ts'
const SOURCE = 'src/messaging/relay/postgres-source.ts'
const QUEUE = 'src/messaging/relay/partition-queue.ts'
const READER = 'src/messaging/relay/lane-reader.ts'
const LOOP = 'src/messaging/relay/lane-loop.ts'
const RUNS = 'src/messaging/relay/held-runs.ts'
const OWNERS = 'src/messaging/relay/leases.ts'

const CONTRACT = 'test/messaging/relay/postgres-source.test.ts'
const FENCES = 'test/messaging/relay/fences.test.ts'
const FAILED_READ = 'test/messaging/relay/failed-read.test.ts'
const SIMULATION = 'test/messaging/relay/simulation.test.ts'
const STALE = 'changes nothing under a lease that is gone, whatever is asked'

/** Stands in for `fenced`: the same transaction, whoever owns the lane. */
const unfenced =
  'await (async (_ownership: Ownership, work: (trx: Knex.Transaction) => Promise<number>) => ({ changed: await db.transaction(work), fencedLanes: [] }))'

export const RELAY: readonly Mutation[] = [
  {
    name: 'fence: mark',
    edits: [
      {
        file: OUTBOX,
        find: 'and claimed.token = lane_leases.token\n        where lane_leases.owner = :owner\n        order by lane_leases.lane',
        replace: 'where cast(:owner as uuid) is not null\n        order by lane_leases.lane',
      },
    ],
    test: CONTRACT,
    title: STALE,
  },
  {
    name: 'fence: mark takes no lock on the lease',
    edits: [
      {
        file: OUTBOX,
        find: 'order by lane_leases.lane\n          for share of lane_leases),',
        replace: 'order by lane_leases.lane),',
      },
    ],
    test: FENCES,
    title: 'a mark that meets a takeover under way waits for it, and changes nothing',
  },
  {
    name: 'fence: read',
    edits: [
      {
        file: OUTBOX,
        find: 'and lane_leases.token = claimed.token\n        and lane_leases.owner = :owner',
        replace: 'and cast(:owner as uuid) is not null',
      },
    ],
    test: CONTRACT,
    title: 'reads nothing of a lane whose lease is gone',
  },
  {
    name: 'fence: hold',
    edits: [
      {
        file: SOURCE,
        find: 'await fenced(ownership, async (trx) => {\n        await upsertHeldKey(trx, key, request)',
        replace: `${unfenced}(ownership, async (trx) => {\n        await upsertHeldKey(trx, key, request)`,
      },
    ],
    test: CONTRACT,
    title: STALE,
  },
  {
    name: 'fence: later events of a held key',
    edits: [
      {
        file: SOURCE,
        find: 'await fenced(ownership, async (trx) =>\n        (await lockHeldKey(trx, key))',
        replace: `${unfenced}(ownership, async (trx) =>\n        (await lockHeldKey(trx, key))`,
      },
    ],
    test: CONTRACT,
    title: STALE,
  },
  {
    name: 'fence: a held key let go',
    edits: [
      {
        file: SOURCE,
        find: 'const { changed } = await fenced(ownership, async (trx) => {',
        replace: `const { changed } = ${unfenced}(ownership, async (trx) => {`,
      },
    ],
    test: FENCES,
    title: 'a worker that has lost its lane lets no key go that its successor holds',
  },
  {
    name: 'fence: skip',
    edits: [
      {
        file: SOURCE,
        find: 'await fenced(ownership, async (trx) => await skipFirst(',
        replace: `${unfenced}(ownership, async (trx) => await skipFirst(`,
      },
    ],
    test: CONTRACT,
    title: STALE,
  },
  {
    name: 'fence: resume',
    edits: [
      {
        file: SOURCE,
        find: 'await fenced(ownership, async (trx) => await resumeKey(',
        replace: `${unfenced}(ownership, async (trx) => await resumeKey(`,
      },
    ],
    test: CONTRACT,
    title: STALE,
  },
  {
    name: 'fence: attempts counted',
    edits: [
      {
        file: OUTBOX,
        find: 'and claimed.token = lane_leases.token\n        where lane_leases.owner = :owner\n          for share of lane_leases)\n     update outbox\n        set attempts',
        replace: 'where cast(:owner as uuid) is not null)\n     update outbox\n        set attempts',
      },
    ],
    test: CONTRACT,
    title: STALE,
  },
  {
    name: 'fence: lanes given back',
    edits: [
      {
        file: LEASES,
        find: 'as claimed (lane, token, doubt)\n      where lane_leases.lane = claimed.lane\n        and lane_leases.token = claimed.token\n        and lane_leases.owner = :owner',
        replace:
          'as claimed (lane, token, doubt)\n      where lane_leases.lane = claimed.lane\n        and cast(:owner as uuid) is not null',
      },
    ],
    test: CONTRACT,
    title: STALE,
  },
  {
    name: 'claim: expiry not looked at',
    edits: [
      {
        file: LEASES,
        find: 'and relay_workers.expires_at > clock_timestamp())\n        order by lane_leases',
        replace: 'and false)\n        order by lane_leases',
      },
    ],
    test: CONTRACT,
    title: 'gives a lane to one owner, and to another only after its lease',
  },
  {
    name: 'claim: token does not grow',
    edits: [{ file: LEASES, find: 'token = lane_leases.token + 1,', replace: 'token = lane_leases.token,' }],
    test: CONTRACT,
    title: 'gives a lane to one owner, and to another only after its lease',
  },
  {
    name: 'queue: more than one batch in flight',
    edits: [{ file: QUEUE, find: 'await before\n    try {', replace: 'void before\n    try {' }],
    test: 'test/messaging/relay/partition-queue.test.ts',
    title: 'what goes apart has its turn after the batch in flight, however many wait',
  },
  {
    name: 'queue: not emptied by a failure',
    edits: [{ file: QUEUE, find: '[...failure.unsettled, ...this.clear()]', replace: '[...failure.unsettled]' }],
    test: SIMULATION,
    title: 'loses, invents and reorders nothing under faults',
  },
  {
    name: 'queue: sent whatever has become of lane and key',
    edits: [
      {
        file: LOOP,
        find: 'if (this.#hand.has(taken) && !this.#heldKeys.has(where.topic, taken.event)) return true',
        replace: 'if (taken !== null) return true',
      },
    ],
    test: SIMULATION,
    title: 'loses, invents and reorders nothing under faults',
  },
  {
    name: 'reader: a failure during the read forgotten',
    edits: [
      {
        file: READER,
        find: 'where === null || this.#failedDuringRead.has(nameOf(where))',
        replace: 'where === null',
      },
    ],
    test: 'test/messaging/relay/failed-read.test.ts',
    title: 'an event read while the one before it failed waits for it, however long the read took',
  },
  {
    name: 'reader: what was read under a lease that has ended is taken',
    edits: [
      { file: READER, find: 'ownership.leases.filter((lease) => hand.holdsUnder(lease))', replace: 'ownership.leases' },
      { file: READER, find: 'if (lease === undefined || !hand.holdsUnder(lease)) return false', replace: '' },
      {
        file: 'src/messaging/relay/hand.ts',
        find: 'if (state?.grant.token !== token || state.events.has(event.seq)) return null',
        replace: 'if (state === undefined || state.events.has(event.seq)) return null',
      },
      {
        file: 'src/messaging/relay/hand.ts',
        find: 'const taken = { event, token, bytes',
        replace: 'const taken = { event, token: state.grant.token, bytes',
      },
    ],
    test: 'test/messaging/relay/failed-read.test.ts',
    title: 'an event read under a lease that has ended and come back goes after what was in hand before it',
  },
  {
    name: 'reader: held keys not looked for at queueing',
    edits: [
      {
        file: READER,
        find: 'if (heldKeys.has(key.topic, event)) followed',
        replace: 'if (event === undefined) followed',
      },
    ],
    test: SIMULATION,
    title: 'loses, invents and reorders nothing under faults',
  },
  {
    name: 'reader: what is in hand read again',
    edits: [{ file: READER, find: 'inHand: hand.inHand(plan)', replace: 'inHand: []' }],
    test: 'test/messaging/relay/relay.test.ts',
    title: 'ten thousand events of one transaction are published once each',
  },
  {
    name: 'relay: settled before it is published',
    edits: [
      {
        file: QUEUE,
        find: 'const error = await this.#send(events, {',
        replace: 'onPublished(batch, this.where)\n    const error = await this.#send(events, {',
      },
    ],
    test: 'test/crash-points/crash-points.test.ts',
    title: 'F10 a process that dies at any point of its relay',
  },
  {
    name: 'hold: a row that is being marked is held too',
    edits: [
      {
        file: OUTBOX,
        find: 'limit 1000)\n        and published_at is null\n        and not held',
        replace: 'limit 1000)',
      },
    ],
    test: FENCES,
    title: 'what is marked as published while its key is being held is not held with it',
  },
  {
    name: 'hold: a held key does not wait for marks',
    edits: [
      { file: RUNS, find: 'if (hand.some(due.ref.lane,', replace: 'if (hand.count < 0 && hand.some(due.ref.lane,' },
    ],
    test: FAILED_READ,
    title: 'what was sent before a refused event is not sent again while it is still to be marked',
  },
  {
    name: 'hold: under whatever isolation is the default',
    edits: [{ file: SOURCE, find: "isolationLevel: 'read committed'", replace: '' }],
    test: FENCES,
    title: 'a key of which an event becomes held at the same moment is kept, whatever isolation is the default',
  },
  {
    name: 'hold: what another topic rule has left is not returned',
    edits: [
      { file: SOURCE, find: 'if (isReleased && ruleTopic(key) !== key.topic)', replace: 'if (ruleTopic(key) === "")' },
    ],
    test: FENCES,
    title: 'under another topic rule what a key has held is pending again once the key is let go',
  },
  {
    name: 'hold: a topic rule that fails stops keys that it says nothing of',
    edits: [
      { file: SOURCE, find: 'const rule = answeringTopicRule(topicFor)', replace: 'const rule = topicFor' },
      { file: SOURCE, find: 'answeringTopicRule, type TopicRule', replace: 'type TopicRule' },
    ],
    test: 'test/messaging/relay/failures.test.ts',
    title: 'an event with a topic of its own is held and let go by a relay whose topic rule throws',
  },
  {
    name: 'hold: a dead letter under a key that no index takes',
    edits: [
      {
        file: 'src/messaging/dead-letters/dead-letter-topic.ts',
        find: "aggregateId === '' || Buffer.byteLength(aggregateId) > MAX_KEY_BYTES ?",
        replace: "aggregateId === '' || MAX_KEY_BYTES < 0 ?",
      },
    ],
    test: 'test/messaging/consumer/dead-letter-topic.test.ts',
    title: 'a dead letter whose key no append takes has one that the relay can hold when it is refused',
  },
  {
    name: 'hold: a repeated parking takes a request away',
    edits: [
      {
        file: 'src/messaging/relay/held-queries.ts',
        find: 'then held_keys.request\n',
        replace: 'then null\n',
      },
    ],
    test: CONTRACT,
    title: 'keeps what an operator has asked where the parking of a key is repeated, its answer lost',
  },
  {
    name: 'read: what a key let go meanwhile is taken all the same',
    edits: [{ file: READER, find: 'letGo.has(name)', replace: 'false' }],
    test: FAILED_READ,
    title: 'an event that a held key has published while a read was under way is not taken from that read',
  },
  {
    name: 'read: what was dropped for an adoption is overtaken',
    edits: [{ file: READER, find: 'dropped.has(key.topic)', replace: 'false' }],
    test: FAILED_READ,
    title: 'an event read while an adoption began and was given up goes after what was dropped for it',
  },
  {
    name: 'lease: a worker that drains is not told what it has lost',
    edits: [
      { file: OWNERS, find: 'for (const member of working) this.#tellLost(member, lanes)', replace: 'void lanes' },
    ],
    test: 'test/messaging/relay/leases.test.ts',
    title: 'a worker that drains hears what it has lost: another may be sending there by now',
  },
  {
    name: 'skip: what could not be marked before the end is not in doubt',
    edits: [{ file: LOOP, find: 'this.#hand.lastOf(lane)]', replace: '0n]' }],
    test: FAILED_READ,
    title: 'what was accepted and could not be marked before the end is in doubt for the next owner',
  },
]
