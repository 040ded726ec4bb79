/** What a test and its relay threads say to each other. Apart from the thread's entry, which runs when it is imported. */

/** What the thread is told. */
export interface TestThreadData {
  readonly databaseUrl: string
  readonly brokers: readonly string[]
  readonly topic: string
  /** Events of this type end the thread at once, before they are sent. */
  readonly dieOn?: string
  /** A zero in shared memory: the first thread that finds it there ends at once when its next batch is acknowledged, before that is marked. */
  readonly dieOnceAcknowledged?: SharedArrayBuffer
  /** Shared memory by which the thread is blocked and tells what came of it: see {@link BLOCKED}. */
  readonly blocked?: Int32Array
}

/** Where things are in {@link TestThreadData.blocked}, and what they mean. */
export const BLOCKED = {
  /** The place of the word: 0 is free, the rest follows. */
  word: 0,
  /** The next batch that is acknowledged is followed by a busy loop, before it is marked. */
  next: 1,
  /** The thread is in the loop. */
  now: 2,
  /** The loop may end. */
  over: 3,
  /** The place of a counter: how often the thread has found lanes lost. */
  losses: 1,
} as const
