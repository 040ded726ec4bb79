/** What keeps a skipped event from its topic. */
import type { Mutation } from './mutation.ts'

const SKIPS = 'test/messaging/relay/skips.test.ts'
const LATE = 'test/messaging/relay/late-sends.test.ts'

export const SKIP: readonly Mutation[] = [
  {
    name: 'skip: partition not read',
    edits: [
      {
        file: 'src/messaging/relay/skips.ts',
        find: 'doubts.has(event) ? await this.#find(event) : null',
        replace: 'doubts === null ? await this.#find(event) : null',
      },
    ],
    test: SKIPS,
    title: 'counts an event as published whose send was applied unknown to the relay',
  },
  {
    name: 'skip: a resume goes on whose place a skip has taken',
    edits: [
      {
        file: 'src/messaging/relay/held-runs.ts',
        find: 'if (changed === 0) return POSTPONE_MS',
        replace: 'if (changed < 0) return POSTPONE_MS',
      },
    ],
    test: SKIPS,
    title: 'does the skip that has taken the place of a resume, whoever has begun to carry that out',
  },
  {
    name: 'skip: what is on its way not waited for',
    edits: [
      {
        file: 'src/messaging/relay/doubts.ts',
        find: 'return Math.max(0, doubt.at',
        replace: 'return Math.min(0, doubt.at',
      },
    ],
    test: LATE,
    title: 'what a relay had sent when it died arrives before the event is skipped',
  },
  {
    name: 'skip: a time that lies too far ahead is waited for',
    edits: [
      {
        file: 'src/messaging/relay/held-keys.ts',
        find: 'return waitedUntil ?? now + restOf(key)',
        replace: 'return now + restOf(key)',
      },
    ],
    test: LATE,
    title: 'a skip outlasts what is on its way, but not the day by which the clock of the database was set back',
  },
  {
    name: 'skip: a time that lies too far ahead is not waited for at all',
    edits: [
      {
        file: 'src/messaging/relay/held-keys.ts',
        find: 'this.#clock.now() + this.#longestSkipMs)',
        replace: 'this.#clock.now())',
      },
    ],
    test: LATE,
    title: 'a skip outlasts what is on its way, but not the day by which the clock of the database was set back',
  },
  {
    name: 'skip: a time that lies too far ahead has not come',
    edits: [
      {
        file: 'src/messaging/relay/held-queries.ts',
        find: 'or next_attempt_at > clock_timestamp() + :longestWaitMs',
        replace: 'or next_attempt_at < clock_timestamp() - :longestWaitMs',
      },
    ],
    test: 'test/messaging/relay/postgres-source.test.ts',
    title: 'skips an event whose time lies further ahead than any skip waits, and no other before its time',
  },
  {
    name: 'skip: no doubt about a relay that vanished',
    edits: [
      {
        file: 'src/messaging/relay/lease-queries.ts',
        find: 'doubt = case when wanted.is_taken_over then',
        replace: 'doubt = case when false then',
      },
    ],
    test: SKIPS,
    title: 'doubts what a relay that vanished may have sent',
  },
  {
    name: 'skip: doubt forgotten when a lane is given back',
    edits: [
      {
        file: 'src/messaging/relay/lane-loop.ts',
        find: 'doubt: this.#doubtOf(lease.lane)',
        replace: 'doubt: 0n',
      },
    ],
    test: SKIPS,
    title: 'remembers what was in doubt when the lane has changed hands in good order',
  },
  {
    name: 'skip: search ends before a transaction that is open',
    edits: [
      {
        file: 'src/messaging/kafka/inside.ts',
        find: 'isolationLevel: READ_UNCOMMITTED,',
        replace: 'isolationLevel: READ_COMMITTED,',
      },
    ],
    test: 'test/messaging/kafka/event-search.test.ts',
    title: 'waits for a transaction that is open before what it looks for',
  },
  {
    name: 'queue: sends under leases that are not certain',
    edits: [
      {
        file: 'src/messaging/relay/partition-queue.ts',
        find: 'await certain()\n    const batch',
        replace: 'void certain\n    const batch',
      },
    ],
    test: LATE,
    title: 'a relay that was frozen sends nothing of what it had read when others have its lanes',
  },
  {
    name: 'leases: certain before what is lost is told',
    edits: [
      {
        file: 'src/messaging/relay/leases.ts',
        find: "    learn(view)\n    for (const { handle } of working) handle.line.post({ kind: 'renewed', term })\n",
        replace: "    for (const { handle } of working) handle.line.post({ kind: 'renewed', term })\n    learn(view)\n",
      },
    ],
    test: 'test/messaging/relay/leases.test.ts',
    title: 'a worker hears what it has lost before it hears that its leases stand',
  },
  {
    name: 'driver: a request leaves after its time',
    edits: [
      {
        file: 'src/messaging/kafka/partition-producer.ts',
        find: 'if (apiKey !== PRODUCE || !isOver(this.#term, clock)) return',
        replace: 'if (apiKey !== PRODUCE || !isOver(this.#term, { ...clock, now: () => 0 })) return',
      },
    ],
    test: 'test/messaging/kafka/publisher-rules.test.ts',
    title: 'sends nothing once the time for it is over',
  },
  {
    name: 'driver: a request that has waited leaves after its time',
    edits: [
      {
        file: 'src/messaging/kafka/mend.ts',
        find: '    const answer = send(request)\n',
        replace: '    watch.admit(request.request.apiKey)\n    const answer = send(request)\n',
      },
      {
        file: 'src/messaging/kafka/mend.ts',
        find: 'if (watch !== null) admitAtLast(requestQueue, watch)',
        replace: '',
      },
    ],
    test: 'test/messaging/kafka/publisher-rules.test.ts',
    title: 'sends nothing that has waited behind a throttle until its time was over',
  },
]
