/** The fences of the relay, and what keeps a key's events in order on the way out. */
import type { Mutation } from './mutation.ts'

const OUTBOX = 'src/messaging/relay/outbox-queries.ts'
const LEASES = 'src/messaging/relay/lease-queries.ts'
const SOURCE = 'src/messaging/relay/postgres-source.ts'
const QUEUE = 'src/messaging/relay/partition-queue.ts'
const READER = 'src/messaging/relay/lane-reader.ts'
const LOOP = 'src/messaging/relay/lane-loop.ts'

const CONTRACT = 'test/messaging/relay/postgres-source.test.ts'
const FENCES = 'test/messaging/relay/fences.test.ts'
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
        find: 'const error = await this.#send(batch.map(({ event }) => event))',
        replace: 'onPublished(batch, this.where)\n    const error = await this.#send(batch.map(({ event }) => event))',
      },
    ],
    test: 'test/crash-points/crash-points.test.ts',
    title: 'F10 a process that dies at any point of its relay',
  },
]
