/**
 * What every source of the relay does alike, whether its events lie in Postgres
 * or in memory: the rules that order, fencing and holding rest on.
 */
import { randomUUID } from 'node:crypto'
import { expect, test } from '@jest/globals'
import type { OutboxEvent } from '../../../src/messaging/envelope.ts'
import type {
  Exclusion,
  KeyRef,
  LaneDirectory,
  LaneGrant,
  Lease,
  Ownership,
  RelaySource,
  TopicRegistry,
} from '../../../src/messaging/source.ts'

/** An event as a test states it; its topic follows the rule `<type>.events`. */
export interface TestEvent {
  readonly type: string
  readonly id: string
  /** @defaultValue `{}` */
  readonly payload?: string
  /** A topic of its own. */
  readonly topic?: string
}

/** A source with the levers that a test needs. */
export interface SourceUnderTest extends AsyncDisposable {
  readonly source: RelaySource
  readonly directory: LaneDirectory
  readonly topics: TopicRegistry
  /** Appends in a transaction of its own that has taken its places when this resolves, and is seen after `commit`. */
  appendOpen(events: readonly TestEvent[]): Promise<{ commit(): Promise<void> }>
  /** Ends a worker's lease, as if its time had passed. */
  expire(owner: string): Promise<void>
  /** Asks something of a held key, as an operator would. */
  request(key: KeyRef, request: 'resume' | 'skip' | 'retry_now'): Promise<void>
  /** The ids of the events that were declared skipped. */
  skipped(): Promise<readonly string[]>
}

const ALL = Array.from({ length: 64 }, (_, lane) => lane)

/** Declares the tests. `open` gives an empty source. */
export function sourceContract(name: string, open: () => Promise<SourceUnderTest>): void {
  const contract = (title: string, body: (under: SourceUnderTest) => Promise<void>) => {
    test(`${name}: ${title}`, async () => {
      await using under = await open()
      await body(under)
    })
  }

  contract('reads pending events in append order', async (under) => {
    await append(under, [order('a'), order('a'), order('b')])
    await append(under, [order('a')])

    const events = await readAll(under)
    expect(events.filter(({ aggregate }) => aggregate.id === 'a').map(({ seq }) => seq)).toEqual(
      sorted(events.filter(({ aggregate }) => aggregate.id === 'a').map(({ seq }) => seq)),
    )
    expect(events).toHaveLength(4)
  })

  contract('reads nothing of a transaction that is still open, and misses nothing that commits late', async (under) => {
    const late = await under.appendOpen([order('early place')])
    await append(under, [order('late place')])

    expect((await readAll(under)).map(({ aggregate }) => aggregate.id)).toEqual(['late place'])
    await late.commit()
    expect((await readAll(under)).map(({ aggregate }) => aggregate.id).sort()).toEqual(['early place', 'late place'])
  })

  contract('reads at most the limit of each lane, and other lanes whatever one has', async (under) => {
    await append(under, [order('a'), order('a'), order('a'), order('other')])
    const lane = (await keyNamed(under, 'a')).lane

    const events = await under.source.read(await current(under), {
      ...everything(),
      lanes: ALL.map((each) => ({ lane: each, limit: 2 })),
    })
    expect(events.filter((event) => event.lane === lane)).toHaveLength(2)
    expect(events.some(({ aggregate }) => aggregate.id === 'other')).toBe(true)
  })

  contract('ends a lane at its bytes, after one event at least', async (under) => {
    const payload = JSON.stringify('x'.repeat(1_000))
    await append(
      under,
      [1, 2, 3, 4].map(() => ({ ...order('a'), payload })),
    )

    expect(await under.source.read(await current(under), { ...everything(), maxBytesPerLane: 1_500 })).toHaveLength(2)
    expect(await under.source.read(await current(under), { ...everything(), maxBytesPerLane: 10 })).toHaveLength(1)
  })

  contract('leaves out what is in hand', async (under) => {
    await append(under, [order('a'), order('a'), order('a')])
    const [first, second, third] = await readAll(under)
    const inHand = [first, second].flatMap((event) => event?.seq ?? [])

    const rest = await under.source.read(await current(under), { ...everything(), inHand })
    expect(rest.map(({ seq }) => seq)).toEqual([third?.seq])
  })

  contract('leaves out a topic or a partition that rests, and events sent to it by their own topic', async (under) => {
    await append(under, [
      order('a'),
      order('b'),
      { ...order('c'), topic: 'special' },
      { ...order('d'), type: 'invoice' },
    ])
    const events = await readAll(under)
    const a = events.find(({ aggregate }) => aggregate.id === 'a')
    const count = 64
    const partition = { number: (a?.keyHash ?? 0) & 63, count }
    const orders = { topic: 'order.events', aggregateTypes: ['order'] }

    expect(await idsWithout(under, [{ ...orders, partition: null }])).toEqual(['c', 'd'])
    expect(await idsWithout(under, [{ ...orders, partition }])).toEqual(['b', 'c', 'd'])
    expect(await idsWithout(under, [{ topic: 'special', aggregateTypes: [], partition: null }])).toEqual([
      'a',
      'b',
      'd',
    ])
  })

  contract('settles under the lease, once', async (under) => {
    await append(under, [order('a'), order('b')])
    const ownership = await own(under)
    const events = await readAll(under)

    expect(await under.source.settle(ownership, events)).toEqual({ changed: 2, fencedLanes: [] })
    expect(await under.source.settle(ownership, events)).toEqual({ changed: 0, fencedLanes: [] })
    expect(await readAll(under)).toEqual([])
  })

  contract('gives a lane to one owner, and to another only after its lease', async (under) => {
    const [first, second] = [randomUUID(), randomUUID()]
    await under.directory.renew([first, second], 60_000)

    const got = await under.directory.claim(first, [1, 2])
    expect(got.map(({ lane }) => lane).sort()).toEqual([1, 2])
    expect(await under.directory.claim(second, [1, 2])).toEqual([])
    await under.expire(first)
    const taken = await under.directory.claim(second, [1])
    expect(taken).toMatchObject([{ lane: 1, crashes: 1 }])
    expect(taken[0]?.token).toBeGreaterThan(tokenOf(got, 1))
  })

  contract('counts no crash for a lane that was given back, and clears the count on demand', async (under) => {
    const [first, second] = [randomUUID(), randomUUID()]
    await under.directory.renew([first, second], 60_000)
    const leases = await under.directory.claim(first, [1])
    await under.source.release(first, giveBack(leases))
    expect(await under.directory.claim(second, [1])).toMatchObject([{ crashes: 0 }])

    await under.expire(second)
    const taken = await under.directory.claim(first, [1])
    expect(taken).toMatchObject([{ crashes: 1 }])
    await under.source.clearCrashes({ owner: first, leases: taken })
    const view = await under.directory.renew([first], 60_000)
    expect(view.lanes.find(({ lane }) => lane === 1)).toMatchObject({ owner: first, crashes: 0 })
  })

  contract('doubts all that a vanished owner may have sent, whoever has the lane later', async (under) => {
    await append(under, [order('a')])
    const [event] = await readAll(under)
    if (!event) throw new Error('Nothing was read')
    const { lane, seq } = event
    const vanished = await current(under)
    const doubtOf = (grants: readonly LaneGrant[]) => grants.find((grant) => grant.lane === lane)?.doubt
    await under.expire(vanished.owner)
    const successor = await own(under)
    await append(under, [order('a')])
    const later = (await readAll(under)).find((other) => other.lane === lane && other.seq > seq)

    expect(doubtOf(successor.leases)).toBeGreaterThanOrEqual(seq)
    expect(doubtOf(successor.leases)).toBeLessThan(later?.seq ?? 0n)
    await under.source.release(successor.owner, giveBack(successor.leases))
    const heir = await own(under)
    expect(doubtOf(heir.leases)).toBe(doubtOf(successor.leases))
    const view = await under.directory.renew([heir.owner], 60_000)
    expect(view.lanes.find((state) => state.lane === lane)?.doubt).toBe(doubtOf(successor.leases))
  })

  contract('keeps what a worker doubts when it gives a lane back, and never doubts less', async (under) => {
    const first = await own(under)
    expect(first.leases.map(({ doubt }) => doubt)).toEqual(ALL.map(() => 0n))
    await under.source.release(first.owner, giveBack(first.leases, 7n))
    const second = await own(under)
    expect(second.leases.map(({ doubt }) => doubt)).toEqual(ALL.map(() => 7n))
    await under.source.release(second.owner, giveBack(second.leases, 3n))

    expect((await own(under)).leases.map(({ doubt }) => doubt)).toEqual(ALL.map(() => 7n))
  })

  contract('lets a retired worker’s lanes be claimed at once', async (under) => {
    const [first, second] = [randomUUID(), randomUUID()]
    await under.directory.renew([first, second], 60_000)
    await under.directory.claim(first, [7])
    await under.directory.retire(first)

    expect(await under.directory.claim(second, [7])).toHaveLength(1)
    expect((await under.directory.renew([second], 60_000)).liveOwners).toEqual([second])
  })

  contract('tells the horizon at a takeover: everything appended before lies up to it', async (under) => {
    await append(under, [order('a'), order('b')])
    const last = sorted((await readAll(under)).map(({ seq }) => seq)).at(-1) ?? 0n
    await under.expire((await current(under)).owner)

    const { leases } = await own(under)
    expect(leases).toHaveLength(64)
    for (const { horizon } of leases) expect(horizon).toBeGreaterThanOrEqual(last)
  })

  contract(
    'reads nothing of a lane whose lease is gone: its next owner may hold what comes first there',
    async (under) => {
      await append(under, [order('a'), order('b')])
      const stale = await own(under)
      const key = await keyNamed(under, 'a')
      await under.expire(stale.owner)
      const successor = await own(under)
      await under.source.hold(only(successor, key.lane), key, hold())
      await append(under, [order('a')])

      expect(await under.source.read(stale, everything())).toEqual([])
      expect(await under.source.read(successor, everything())).toHaveLength(2)
    },
  )

  contract('changes nothing under a lease that is gone, whatever is asked', async (under) => {
    await append(under, [order('a')])
    const stale = await own(under)
    const [event] = await readAll(under)
    if (!event) throw new Error('Nothing was read')
    await under.expire(stale.owner)
    await own(under)
    const key = keyOf(event)

    const nothing = { changed: 0, fencedLanes: expect.arrayContaining([event.lane]) }
    expect(await under.source.settle(stale, [event])).toEqual(nothing)
    expect(await under.source.hold(only(stale, key.lane), key, hold())).toEqual(nothing)
    expect(await under.source.holdFollowers(only(stale, key.lane), key)).toEqual(nothing)
    expect(await under.source.releaseKey(only(stale, key.lane), key)).toBe(false)
    expect(await under.source.skip(only(stale, key.lane), key, skipOf(event))).toEqual(nothing)
    expect(await under.source.goOn(only(stale, key.lane), key, 'resume')).toEqual(nothing)
    expect(await under.source.clearAttempts(only(stale, event.lane), event)).toEqual(nothing)
    expect(await under.source.recordAttempt(only(stale, event.lane), event)).toBe(0)
    expect(await under.source.clearCrashes(stale)).toEqual(nothing)
    expect(await under.source.release(stale.owner, giveBack(stale.leases, event.seq))).toEqual(nothing)
    expect(await readAll(under)).toHaveLength(1)
    expect(await under.source.heldKeys(ALL)).toEqual([])
  })

  contract('fences lane by lane: what is still owned is settled', async (under) => {
    await append(under, [order('a'), order('b'), order('c'), order('d')])
    const ownership = await own(under)
    const events = await readAll(under)
    const lost = events[0]?.lane ?? -1
    const leases = ownership.leases.map((lease) =>
      lease.lane === lost ? { ...lease, token: lease.token - 1n } : lease,
    )

    const settled = await under.source.settle({ ...ownership, leases }, events)
    expect(settled).toEqual({ changed: events.filter(({ lane }) => lane !== lost).length, fencedLanes: [lost] })
    expect((await readAll(under)).every(({ lane }) => lane === lost)).toBe(true)
  })

  contract('holds a key with all of its pending events, and no other key', async (under) => {
    await append(under, [order('a'), order('a'), order('b')])
    const ownership = await own(under)
    const key = await keyNamed(under, 'a')

    await under.source.hold(
      only(ownership, key.lane),
      key,
      hold({ attempts: 3, reason: 'MESSAGE_TOO_LARGE', retryInMs: 60_000 }),
    )

    expect((await readAll(under)).map(({ aggregate }) => aggregate.id)).toEqual(['b'])
    expect(await under.source.readHeld(key, atMost(10))).toHaveLength(2)
    expect(await under.source.readHeld(key, atMost(1))).toHaveLength(1)
    const [held] = await under.source.heldKeys(ALL)
    expect(held).toMatchObject({ ...key, state: 'backoff', attempts: 3, reason: 'MESSAGE_TOO_LARGE', request: null })
    expect(held?.dueInMs).toBeGreaterThan(30_000)
    expect(await under.source.heldKeys(ALL.filter((lane) => lane !== key.lane))).toEqual([])
  })

  contract('takes later events of a held key along when told, in append order', async (under) => {
    await append(under, [order('a')])
    const ownership = await own(under)
    const key = await keyNamed(under, 'a')
    await under.source.hold(only(ownership, key.lane), key, hold())
    await append(under, [order('a'), order('a')])

    expect(await readAll(under)).toHaveLength(2)
    expect((await under.source.holdFollowers(only(ownership, key.lane), key)).changed).toBe(2)
    const seqs = (await under.source.readHeld(key, atMost(10))).map(({ seq }) => seq)
    expect(seqs).toHaveLength(3)
    expect(seqs).toEqual(sorted(seqs))
  })

  contract('holds no follower of a key that is held no longer', async (under) => {
    await append(under, [order('a')])
    const ownership = await own(under)
    const key = await keyNamed(under, 'a')

    expect((await under.source.holdFollowers(only(ownership, key.lane), key)).changed).toBe(0)
    expect(await readAll(under)).toHaveLength(1)
  })

  contract('lets a key go once its held events are settled, not before', async (under) => {
    await append(under, [order('a'), order('a')])
    const ownership = await own(under)
    const key = await keyNamed(under, 'a')
    await under.source.hold(only(ownership, key.lane), key, hold())

    expect(await under.source.releaseKey(only(ownership, key.lane), key)).toBe(false)
    await under.source.settle(ownership, await under.source.readHeld(key, atMost(10)))
    expect(await under.source.releaseKey(only(ownership, key.lane), key)).toBe(true)
    expect(await under.source.heldKeys(ALL)).toEqual([])
    await append(under, [order('a')])
    expect(await readAll(under)).toHaveLength(1)
  })

  contract(
    'shows an operator’s request to the renewing relay and with the key, until it is answered',
    async (under) => {
      await append(under, [order('a')])
      const ownership = await own(under)
      const key = await keyNamed(under, 'a')
      await under.source.hold(only(ownership, key.lane), key, hold({ park: true }))
      await under.request(key, 'resume')

      expect((await under.directory.renew([ownership.owner], 60_000)).requestedLanes).toEqual([key.lane])
      expect(await under.source.heldKeys([key.lane])).toMatchObject([{ state: 'parked', request: 'resume' }])
      await under.source.hold(only(ownership, key.lane), key, hold())
      expect((await under.directory.renew([ownership.owner], 60_000)).requestedLanes).toEqual([])
      expect(await under.source.heldKeys([key.lane])).toMatchObject([{ state: 'backoff', request: null }])
    },
  )

  contract(
    'keeps what an operator has asked where the parking of a key is repeated, its answer lost',
    async (under) => {
      await append(under, [order('a')])
      const ownership = await own(under)
      const key = await keyNamed(under, 'a')
      const lease = only(ownership, key.lane)
      const request = async () => (await under.source.heldKeys([key.lane])).map((held) => held.request)
      const parking = hold({ attempts: 3, reason: 'INVALID_RECORD', park: true })
      await under.source.hold(lease, key, parking)
      await under.request(key, 'resume')
      await under.source.hold(lease, key, parking)

      expect(await request()).toEqual(['resume'])
      await under.source.hold(lease, key, { ...parking, reason: 'MESSAGE_TOO_LARGE' })
      expect(await request()).toEqual([null])
      await under.request(key, 'skip')
      await under.source.hold(lease, key, { ...parking, reason: 'MESSAGE_TOO_LARGE', attempts: 4 })
      expect(await request()).toEqual([null])
    },
  )

  contract(
    'forgets the request for an attempt at once when that attempt was refused too, however alike',
    async (under) => {
      await append(under, [order('a')])
      const ownership = await own(under)
      const key = await keyNamed(under, 'a')
      const lease = only(ownership, key.lane)
      await under.source.hold(lease, key, hold())
      await under.request(key, 'retry_now')
      await under.source.hold(lease, key, hold())

      expect(await under.source.heldKeys([key.lane])).toMatchObject([{ state: 'backoff', request: null }])
    },
  )

  contract('lets a parked key go on where that is what is asked of it by now', async (under) => {
    await append(under, [order('a'), order('a')])
    const ownership = await own(under)
    const key = await keyNamed(under, 'a')
    const lease = only(ownership, key.lane)
    const nothing = { changed: 0, fencedLanes: [] }
    const goOn = async () => await under.source.goOn(lease, key, 'resume')

    expect(await goOn()).toEqual(nothing)
    await under.source.hold(lease, key, hold({ attempts: 9 }))
    expect(await goOn()).toEqual(nothing)
    await under.source.hold(lease, key, hold({ attempts: 9, park: true }))
    expect(await goOn()).toEqual(nothing)
    await under.request(key, 'resume')
    await under.request(key, 'skip')
    expect(await goOn()).toEqual(nothing)
    expect(await under.source.heldKeys([key.lane])).toMatchObject([{ state: 'parked', attempts: 9, request: 'skip' }])
    await under.request(key, 'resume')
    expect(await goOn()).toEqual({ changed: 1, fencedLanes: [] })

    expect(await under.source.heldKeys([key.lane])).toMatchObject([
      { state: 'backoff', attempts: 0, dueInMs: 0, request: null },
    ])
    expect(await under.source.readHeld(key, atMost(10))).toHaveLength(2)
  })

  contract('keeps a key’s events apart by their topic', async (under) => {
    await append(under, [order('a'), { ...order('a'), topic: 'special' }])
    const ownership = await own(under)
    const key = { ...(await keyNamed(under, 'a')), topic: 'special' }

    await under.source.hold(only(ownership, key.lane), key, hold())
    expect((await readAll(under)).map(({ topic }) => topic)).toEqual([null])
    expect((await under.source.readHeld(key, atMost(10))).map(({ topic }) => topic)).toEqual(['special'])
  })

  contract('ends a held key’s events at the bytes asked for, after one event at least', async (under) => {
    const payload = JSON.stringify('x'.repeat(1_000))
    await append(
      under,
      [1, 2, 3, 4].map(() => ({ ...order('a'), payload })),
    )
    const ownership = await own(under)
    const key = await keyNamed(under, 'a')
    await under.source.hold(only(ownership, key.lane), key, hold())

    expect(await under.source.readHeld(key, { count: 10, bytes: 1_500 })).toHaveLength(2)
    expect(await under.source.readHeld(key, { count: 10, bytes: 10 })).toHaveLength(1)
    expect(await under.source.readHeld(key, { count: 3, bytes: 1_000_000 })).toHaveLength(3)
  })

  contract('skips the first event of a parked key when asked to, and lets the key go on', async (under) => {
    await append(under, [order('a'), order('a'), order('a')])
    const ownership = await own(under)
    const key = await keyNamed(under, 'a')
    const lease = only(ownership, key.lane)
    await under.source.hold(lease, key, hold({ attempts: 9, park: true, retryInMs: 0 }))
    const [first, ...others] = await under.source.readHeld(key, atMost(10))
    await under.request(key, 'skip')

    expect(await under.source.skip(lease, key, skipOf(first))).toEqual({ changed: 1, fencedLanes: [] })
    expect(await under.source.readHeld(key, atMost(10))).toEqual(others)
    expect(await under.source.heldKeys([key.lane])).toMatchObject([
      { state: 'backoff', attempts: 0, dueInMs: 0, request: null },
    ])
    expect(await under.skipped()).toEqual([first?.id])
    expect(
      await under.source.settle(
        ownership,
        [first].filter((event) => event !== undefined),
      ),
    ).toMatchObject({
      changed: 0,
    })
  })

  contract('counts as published what was to be skipped and is on its topic, and lets the key go on', async (under) => {
    await append(under, [order('a'), order('a')])
    const ownership = await own(under)
    const key = await keyNamed(under, 'a')
    const lease = only(ownership, key.lane)
    await under.source.hold(lease, key, hold({ park: true, retryInMs: 0 }))
    const [first, second] = await under.source.readHeld(key, atMost(10))
    await under.request(key, 'skip')

    const found = { ...skipOf(first), published: true }
    expect(await under.source.skip(lease, key, found)).toEqual({ changed: 1, fencedLanes: [] })
    expect(await under.source.readHeld(key, atMost(10))).toEqual([second])
    expect(await under.source.heldKeys([key.lane])).toMatchObject([{ state: 'backoff', attempts: 0, request: null }])
    expect(await under.skipped()).toEqual([])
  })

  contract('skips nothing unasked, in back-off, too soon, twice, or behind the first', async (under) => {
    await append(under, [order('a'), order('a'), order('a')])
    const ownership = await own(under)
    const key = await keyNamed(under, 'a')
    const lease = only(ownership, key.lane)
    const park = async (request: Parameters<typeof hold>[0]) => {
      await under.source.hold(lease, key, hold(request))
      if (request?.reason !== 'UNASKED') await under.request(key, 'skip')
    }
    const [first, second] = await readAll(under)
    const skip = async (event = first) => await under.source.skip(lease, key, skipOf(event))
    const nothing = { changed: 0, fencedLanes: [] }

    expect(await skip()).toEqual(nothing)
    await park({ park: true, retryInMs: 0, reason: 'UNASKED' })
    expect(await skip()).toEqual(nothing)
    await park({ park: false, retryInMs: 0 })
    expect(await skip()).toEqual(nothing)
    await park({ park: true, retryInMs: 60_000 })
    expect(await skip()).toEqual(nothing)
    await park({ park: true, retryInMs: 0 })
    expect(await skip(second)).toEqual(nothing)
    expect(await skip()).toMatchObject({ changed: 1 })
    expect(await skip()).toEqual(nothing)
    expect(await under.skipped()).toHaveLength(1)
  })

  contract(
    'skips an event whose time lies further ahead than any skip waits, and no other before its time',
    async (under) => {
      await append(under, [order('a')])
      const ownership = await own(under)
      const key = await keyNamed(under, 'a')
      const lease = only(ownership, key.lane)
      await under.source.hold(lease, key, hold({ park: true, retryInMs: 120_000 }))
      const [first] = await under.source.readHeld(key, atMost(1))
      await under.request(key, 'skip')
      const skip = async (longestWaitMs: number) =>
        await under.source.skip(lease, key, { ...skipOf(first), longestWaitMs })

      expect(await skip(120_000)).toEqual({ changed: 0, fencedLanes: [] })
      expect(await skip(60_000)).toEqual({ changed: 1, fencedLanes: [] })
      expect(await under.skipped()).toEqual([first?.id])
    },
  )

  contract('forgets attempts that were survived', async (under) => {
    await append(under, [order('a')])
    const ownership = await own(under)
    const [event] = await readAll(under)
    if (!event) throw new Error('Nothing was read')
    const lease = only(ownership, event.lane)
    await under.source.recordAttempt(lease, event)
    await under.source.recordAttempt(lease, event)

    expect(await under.source.clearAttempts(lease, event)).toEqual({ changed: 1, fencedLanes: [] })
    expect(await under.source.recordAttempt(lease, event)).toBe(1)
  })

  contract('counts attempts one by one', async (under) => {
    await append(under, [order('a')])
    const ownership = await own(under)
    const [event] = await readAll(under)
    if (!event) throw new Error('Nothing was read')

    expect(await under.source.recordAttempt(only(ownership, event.lane), event)).toBe(1)
    expect(await under.source.recordAttempt(only(ownership, event.lane), event)).toBe(2)
  })

  contract('tells which lanes have pending events', async (under) => {
    expect(await under.directory.pendingLanes(ALL)).toEqual([])
    await append(under, [order('a')])
    const [event] = await readAll(under)

    expect(await under.directory.pendingLanes(ALL)).toEqual([event?.lane])
    expect(await under.directory.pendingLanes(ALL.filter((lane) => lane !== event?.lane))).toEqual([])
  })

  contract('keeps the first partition count that was recorded', async (under) => {
    expect(await under.topics.recorded('order.events')).toBeNull()
    const record = { partitionCount: 8, earlierCounts: [], adoption: null }
    expect(await under.topics.record('order.events', 8)).toEqual(record)
    expect(await under.topics.record('order.events', 12)).toEqual(record)
    expect(await under.topics.recorded('order.events')).toEqual(record)
  })
}

function order(id: string): TestEvent {
  return { type: 'order', id }
}

async function append(under: SourceUnderTest, events: readonly TestEvent[]): Promise<void> {
  const open = await under.appendOpen(events)
  await open.commit()
}

function everything() {
  return {
    lanes: ALL.map((lane) => ({ lane, limit: 1_000 })),
    maxBytesPerLane: 1_000_000,
    inHand: [],
    exclusions: [],
  }
}

async function readAll(under: SourceUnderTest): Promise<readonly OutboxEvent[]> {
  return under.source.read(await current(under), everything())
}

async function idsWithout(under: SourceUnderTest, exclusions: readonly Exclusion[]): Promise<string[]> {
  const events = await under.source.read(await current(under), { ...everything(), exclusions })
  return events.map(({ aggregate }) => aggregate.id).sort()
}

/** The lease of one lane, as writes on a single key or event present it. */
function only({ owner, leases }: Ownership, lane: number): Ownership {
  return { owner, leases: leases.filter((lease) => lease.lane === lane) }
}

/** The last worker that claimed lanes of each source: reads need one. */
const owners = new WeakMap<SourceUnderTest, Ownership>()

/** A fresh worker that has claimed every lane it could get. */
async function own(under: SourceUnderTest): Promise<{ readonly owner: string; readonly leases: readonly LaneGrant[] }> {
  const owner = randomUUID()
  await under.directory.renew([owner], 60_000)
  const ownership = { owner, leases: await under.directory.claim(owner, ALL) }
  owners.set(under, ownership)
  return ownership
}

async function current(under: SourceUnderTest): Promise<Ownership> {
  return owners.get(under) ?? (await own(under))
}

async function keyNamed(under: SourceUnderTest, id: string): Promise<KeyRef> {
  const event = (await readAll(under)).find(({ aggregate }) => aggregate.id === id)
  if (!event) throw new Error(`No pending event of ${id}`)
  return keyOf(event)
}

function keyOf({ lane, aggregate, topic }: OutboxEvent): KeyRef {
  return { lane, topic: topic ?? `${aggregate.type}.events`, aggregateType: aggregate.type, aggregateId: aggregate.id }
}

function atMost(count: number) {
  return { count, bytes: 1_000_000 }
}

function hold(request: Partial<Parameters<RelaySource['hold']>[2]> = {}) {
  return { attempts: 1, reason: 'INVALID_RECORD', retryInMs: 1_000, park: false, ...request }
}

/** The request to skip this very event. */
function skipOf(event: OutboxEvent | undefined) {
  if (event === undefined) throw new Error('There is no event to skip')
  return { eventId: event.id, published: false, longestWaitMs: 600_000 }
}

/** Lanes to be given back, with one doubt for all. */
function giveBack(leases: readonly Lease[], doubt = 0n) {
  return leases.map(({ lane, token }) => ({ lane, token, doubt }))
}

function tokenOf(grants: readonly LaneGrant[], lane: number): bigint {
  return grants.find((grant) => grant.lane === lane)?.token ?? -1n
}

function sorted(seqs: readonly bigint[]): bigint[] {
  return [...seqs].sort((a, b) => (a < b ? -1 : 1))
}
