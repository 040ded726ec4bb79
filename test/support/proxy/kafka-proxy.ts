/**
 * Stands before one broker and knows where requests and answers begin and end.
 * So it can do what packet tools cannot: deliver a request and swallow its
 * answer. The broker must advertise the proxy's port, or clients go past it.
 * Over TLS it is what a client verifies, and verifies the broker in turn; what
 * SASL says passes through.
 */

import { once } from 'node:events'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { createSecureContext } from 'node:tls'
import type { ServerCertificate } from '../../../src/local/certificates.ts'
import { type End, openEnds, type ProxyTls } from './ends.ts'
import { correlationOf, Frames, headOf, type RequestHead } from './frames.ts'

/** What becomes of one request. */
export type Verdict =
  | 'pass'
  /** The broker carries it out; the answer is swallowed, and the client waits. */
  | 'swallow answer'
  /** The broker carries it out; the connection is reset in place of the answer. */
  | 'reset for answer'
  /** The broker never sees it, and the client waits. */
  | 'drop request'
  /** The broker never sees it; the connection is reset. */
  | 'reset'
  /** The request, and all behind it on its connection, is delivered so many milliseconds later. */
  | { readonly delayMs: number }
  /** The broker carries it out; the client gets what `rewrite` makes of the answer. */
  | { readonly rewrite: (answer: Buffer) => Buffer }

/** Decides about a request; the first rule that does not say `pass` counts. */
export type ProxyRule = (request: RequestHead) => Verdict

/** A proxy before one broker. */
export interface KafkaProxy extends AsyncDisposable {
  readonly port: number
  /** Says which port of 127.0.0.1 the broker listens on. */
  forwardTo(port: number): void
  /** Adds a rule; the answer ends it. */
  rule(rule: ProxyRule): () => void
  /** Holds back everything in both directions; connections stay open, new ones are accepted. */
  freeze(): void
  /** Lets go what was held back, in order. */
  thaw(): void
  /** Resets all connections and resets each new one. */
  cut(): void
  /** Ends a cut. */
  mend(): void
  /** Passes answers on in pieces of so many bytes; 0 ends it. */
  slice(bytes: number): void
  /** How many requests of a kind have come, whatever became of them. */
  count(apiKey: number): number
}

interface State {
  target: number
  readonly tls: ProxyTls | null
  cut: boolean
  sliceBytes: number
  thawed: Promise<void>
  readonly rules: Set<ProxyRule>
  readonly counts: Map<number, number>
  readonly sockets: Set<Socket>
}

/** Listens on a free port of 127.0.0.1; with `tls` it speaks nothing else, with this certificate. */
export async function startKafkaProxy({ tls }: { readonly tls?: ServerCertificate } = {}): Promise<KafkaProxy> {
  const state: State = {
    target: 0,
    tls: tls ? { context: createSecureContext({ key: tls.key, cert: tls.certificate }), ca: tls.ca } : null,
    cut: false,
    sliceBytes: 0,
    thawed: Promise.resolve(),
    rules: new Set(),
    counts: new Map(),
    sockets: new Set(),
  }
  let thaw = () => {}
  const server = createServer((client) => {
    accept(client, state)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    forwardTo: (port) => {
      state.target = port
    },
    rule: (rule) => {
      state.rules.add(rule)
      return () => {
        state.rules.delete(rule)
      }
    },
    freeze: () => {
      const frozen = Promise.withResolvers<void>()
      thaw = frozen.resolve
      state.thawed = frozen.promise
    },
    thaw: () => {
      thaw()
    },
    cut: () => {
      state.cut = true
      for (const socket of state.sockets) reset(socket)
    },
    mend: () => {
      state.cut = false
    },
    slice: (bytes) => {
      state.sliceBytes = bytes
    },
    count: (apiKey) => state.counts.get(apiKey) ?? 0,
    [Symbol.asyncDispose]: async () => {
      thaw()
      for (const socket of state.sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

function accept(client: Socket, state: State): void {
  keep(client, state)
  if (state.cut) {
    reset(client)
    return
  }
  const broker = openEnds(client, state.target, { tls: state.tls, join: (...ends) => join(ends, state) })
  keep(broker, state)
  client.on('close', () => broker.destroy())
  broker.on('close', () => client.destroy())
}

function join([client, broker]: [End, End], state: State): void {
  const both: Both = { client, broker, swallowed: new Set<number>(), reset: new Set<number>(), rewritten: new Map() }
  pump(client.stream, (frame) => deliverRequest(frame, both, state))
  pump(broker.stream, (frame) => deliverAnswer(frame, both, state))
}

function keep(socket: Socket, { sockets }: State): void {
  sockets.add(socket)
  socket.setNoDelay(true)
  socket.on('error', () => {})
  socket.on('close', () => sockets.delete(socket))
}

/** Resets a connection. One that is ending already is destroyed: Node would never close it after a reset, and never end itself. */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy()
  else socket.resetAndDestroy()
}

/** One frame after the other, whatever each of them waits for. */
function pump(socket: Socket, handle: (frame: Buffer) => Promise<void>): void {
  const frames = new Frames()
  let last = Promise.resolve()
  socket.on('data', (chunk: Buffer) => {
    for (const frame of frames.push(chunk)) last = last.then(() => handle(frame))
  })
}

interface Both {
  readonly client: End
  readonly broker: End
  readonly swallowed: Set<number>
  readonly reset: Set<number>
  readonly rewritten: Map<number, (answer: Buffer) => Buffer>
}

async function deliverRequest(frame: Buffer, both: Both, state: State): Promise<void> {
  const head = headOf(frame)
  state.counts.set(head.apiKey, (state.counts.get(head.apiKey) ?? 0) + 1)
  const verdict = decide(head, state)
  await state.thawed
  switch (verdict) {
    case 'drop request':
      return
    case 'reset':
      reset(both.client.socket)
      return
    case 'swallow answer':
      both.swallowed.add(head.correlationId)
      break
    case 'reset for answer':
      both.reset.add(head.correlationId)
      break
    case 'pass':
      break
    default:
      if ('rewrite' in verdict) both.rewritten.set(head.correlationId, verdict.rewrite)
      else await sleep(verdict.delayMs)
  }
  both.broker.stream.write(frame)
}

function decide(head: RequestHead, { rules }: State): Verdict {
  for (const rule of rules) {
    const verdict = rule(head)
    if (verdict !== 'pass') return verdict
  }
  return 'pass'
}

async function deliverAnswer(original: Buffer, both: Both, state: State): Promise<void> {
  await state.thawed
  const correlationId = correlationOf(original)
  if (both.swallowed.delete(correlationId)) return
  if (both.reset.delete(correlationId)) {
    reset(both.client.socket)
    return
  }
  const frame = both.rewritten.get(correlationId)?.(original) ?? original
  both.rewritten.delete(correlationId)
  const size = state.sliceBytes || frame.length
  for (let at = 0; at < frame.length; at += size) {
    both.client.stream.write(frame.subarray(at, at + size))
    if (state.sliceBytes > 0) await sleep(1)
  }
}
