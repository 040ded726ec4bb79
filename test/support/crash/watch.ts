/**
 * Counts points without a change to the product: at the two clients' own doors,
 * through which every statement and every request goes, and at the ports.
 */
import { createRequire } from 'node:module'
import pg from 'pg'
import type { Publisher, Subscriber } from '../../../src/messaging/transport.ts'
import type { Points } from './points.ts'

/** The tables that a statement may be about, those that say most first. */
const TABLES = [
  'effects',
  'held_keys',
  'dead_letters',
  'processed_events',
  'consumer_offsets',
  'relay_workers',
  'lane_leases',
  'order_events',
  'orders',
  'topics',
  'outbox',
]

type Answer = (error: unknown, result: unknown) => void

interface QueryingClient {
  readonly connectionParameters: { readonly application_name?: string }
}

/** Every statement of every pool, under its application's name: `relay: update outbox, sent`. */
export function watchStatements(points: Points): void {
  const prototype = pg.Client.prototype as unknown as { query: (...args: unknown[]) => unknown }
  const { query } = prototype
  prototype.query = function watched(this: QueryingClient, ...args: unknown[]): unknown {
    const [config] = args
    const sql = typeof config === 'string' ? config : (config as { text?: string } | null)?.text
    const role = this.connectionParameters.application_name
    if (sql === undefined || !role) return query.apply(this, args)

    const name = `${role}: ${nameOfStatement(sql)}`
    let answered = false
    const answer = () => {
      answered = true
      points.meet(`${name}, answered`)
    }
    const at = args.findIndex((arg) => typeof arg === 'function')
    if (at >= 0) {
      const callback = args[at] as Answer
      args[at] = (...given: Parameters<Answer>) => {
        answer()
        callback(...given)
      }
    }
    points.meet(`${name}, before`)
    const result = query.apply(this, args)
    if (at < 0) void (result as Promise<unknown>).then(answer, answer)
    // The bytes leave with the next tick; then the server may carry it out, whatever becomes of us.
    setImmediate(() => {
      if (!answered) points.meet(`${name}, sent`)
    })
    return result
  }
}

/** What a statement does, in two or three words: the first table that it writes, or the one that it reads. */
export function nameOfStatement(sql: string): string {
  const text = sql.trim().toLowerCase()
  const [end] = /^(begin|commit|rollback)/.exec(text) ?? []
  if (end) return end
  const [, verb, table] =
    /(?<!for )\b(insert into|update|delete from)\s+"?(?!set\b|of\b)([a-z_]+)/.exec(
      text.replace(/do update set/g, ''),
    ) ?? []
  if (verb) return `${verb} ${table}`
  const read = TABLES.find((name) => new RegExp(`\\b(from|join)\\s+"?${name}\\b`).test(text))
  return read ? `select ${read}` : `select ${text.includes('advisory') ? 'lock' : 'nothing'}`
}

interface BrokerPrototype {
  produce(request: unknown): Promise<unknown>
  offsetCommit(request: unknown): Promise<unknown>
  joinGroup(request: unknown): Promise<{ memberId: string }>
}

/** The two requests that change what the broker has, as they go over the wire; `onMember` hears who we are in the group. */
export function watchRequests(points: Points, onMember: (memberId: string) => void): void {
  // No public door leads to it; the version is pinned.
  const { prototype } = createRequire(import.meta.url)('kafkajs/src/broker') as { prototype: BrokerPrototype }
  const { produce, offsetCommit, joinGroup } = prototype
  prototype.produce = async function watched(request) {
    return await points.aroundRequest('relay: produce request', () => produce.call(this, request))
  }
  prototype.offsetCommit = async function watched(request) {
    return await points.aroundRequest('consumer: offset commit', () => offsetCommit.call(this, request))
  }
  prototype.joinGroup = async function watched(request) {
    const joined = await joinGroup.call(this, request)
    onMember(joined.memberId)
    return joined
  }
}

/** `publisher` with points around each call. Pings, which come by the clock and change nothing, have none. */
export function watchPublisher(publisher: Publisher, points: Points): Publisher {
  return {
    deliveryTimeoutMs: publisher.deliveryTimeoutMs,
    publish: (batch, options) => points.around('relay: publish', () => publisher.publish(batch, options)),
    findEvent: (search, options) => points.around('relay: find event', () => publisher.findEvent(search, options)),
    describeTopic: (topic) => points.around('relay: describe topic', () => publisher.describeTopic(topic)),
    createTopic: (topic, spec) => points.around('relay: create topic', () => publisher.createTopic(topic, spec)),
    ping: () => publisher.ping(),
    close: () => publisher.close(),
  }
}

/** `subscriber` with points around what it asks and delivers: a delivery that begins has been fetched. */
export function watchSubscriber(subscriber: Subscriber, points: Points): Subscriber {
  return {
    subscribe: (subscription) =>
      subscriber.subscribe({
        ...subscription,
        startOffset: (...asked) => points.around('consumer: start offset', () => subscription.startOffset(...asked)),
        deliver: (batch) => points.around('consumer: fetched batch', () => subscription.deliver(batch)),
      }),
  }
}
