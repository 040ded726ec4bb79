/**
 * A way to Postgres that fails on demand, at one statement: its answer is lost
 * after the server has carried it out, or the server never gets it, or the
 * answer waits. Understands as much of the protocol as that takes.
 */
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

/** What becomes of one statement, once. */
export type Fate =
  /** The server carries it out and answers; the answer is dropped and the connection cut. */
  | 'answer lost'
  /** The server never sees it, only the end of the connection. */
  | 'request lost'
  /** The server never sees it and keeps waiting; the client sees the end of the connection. */
  | 'client cut off'
  /** The server carries it out; what it says from then on waits for `release`. */
  | 'answer held'

export interface PostgresProxy extends AsyncDisposable {
  /** The connection string it was made for, by way of the proxy. */
  readonly url: string
  /** Decides the next statement that begins with `text`; resolves when it has come about. */
  meet(text: string, fate: Fate): Promise<void>
  /** What the server says from now on waits for `release`, on connections that have sent a statement that begins with `text`. */
  hold(text: string): void
  /** Hands out what was held, and holds nothing any more. */
  release(): void
  /** Leads to another server from now on, with the same credentials; ends the connections that there are. */
  leadTo(target: string): void
  /** Refuses new connections, or accepts them again. */
  refuseConnections(refuse: boolean): void
}

/** Starts a proxy on a free port of the loopback. */
export async function createPostgresProxy(target: string): Promise<PostgresProxy> {
  let { hostname, port } = new URL(target)
  const links = new Set<Link>()
  let expected: Expectation | null = null
  let refusing = false

  const server = createServer((client) => {
    if (refusing) {
      client.destroy()
      return
    }
    const link = new Link(client, connect(Number(port), hostname), (statement) => {
      if (!(expected && statement.startsWith(expected.text))) return null
      const { fate, met } = expected
      expected = null
      return { fate, met }
    })
    links.add(link)
    void link.closed.then(() => links.delete(link))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')

  const url = new URL(target)
  url.hostname = '127.0.0.1'
  url.port = String((server.address() as AddressInfo).port)
  return {
    url: url.href,
    meet(text, fate) {
      const { promise, resolve } = Promise.withResolvers<void>()
      expected = { text, fate, met: resolve }
      return promise
    },
    hold(text) {
      for (const link of links) link.hold(text)
    },
    release() {
      for (const link of links) link.release()
    },
    leadTo(other) {
      ;({ hostname, port } = new URL(other))
      for (const link of links) link.destroy()
    },
    refuseConnections(refuse) {
      refusing = refuse
    },
    async [Symbol.asyncDispose]() {
      for (const link of links) link.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

interface Expectation {
  readonly text: string
  readonly fate: Fate
  readonly met: () => void
}

/** One client's connection and the server's other end of it. */
class Link {
  /** Resolves when the server's end is closed, which can be later than the client's. */
  readonly closed: Promise<unknown>
  readonly #client: Socket
  readonly #server: Socket
  #fromClient = Buffer.alloc(0)
  #started = false
  #losing: (() => void) | null = null
  #held: Buffer[] | null = null
  #keepServer = false
  readonly #statements: string[] = []

  constructor(client: Socket, server: Socket, judge: (statement: string) => { fate: Fate; met: () => void } | null) {
    this.#client = client
    this.#server = server
    // Not by `once` of node:events, which an error would end.
    this.closed = new Promise((resolve) => server.once('close', resolve))
    client.on('data', (chunk) => {
      this.#fromClient = Buffer.concat([this.#fromClient, chunk])
      for (let message = this.#nextMessage(); message; message = this.#nextMessage()) this.#forward(message, judge)
    })
    server.on('data', (chunk) => {
      if (this.#losing) {
        this.#losing()
        this.destroy()
      } else if (this.#held) {
        this.#held.push(chunk)
      } else {
        client.write(chunk)
      }
    })
    for (const socket of [client, server]) {
      socket.setNoDelay()
      socket.on('error', () => {})
    }
    server.on('close', () => client.destroy())
    client.on('close', () => {
      if (!this.#keepServer) server.destroy()
    })
  }

  #forward(message: Buffer, judge: (statement: string) => { fate: Fate; met: () => void } | null): void {
    const statement = statementOf(message)
    this.#statements.push(statement)
    const verdict = judge(statement)
    switch (verdict?.fate) {
      case undefined:
        break
      case 'answer lost':
        this.#losing = verdict.met
        break
      case 'answer held':
        this.#held = []
        verdict.met()
        break
      case 'request lost':
        this.destroy()
        verdict?.met()
        return
      case 'client cut off':
        this.#keepServer = true
        this.#client.destroy()
        verdict?.met()
        return
    }
    this.#server.write(message)
  }

  /** The first message has no type byte. */
  #nextMessage(): Buffer | null {
    const head = this.#started ? 1 : 0
    if (this.#fromClient.length < head + 4) return null
    const length = head + this.#fromClient.readInt32BE(head)
    if (this.#fromClient.length < length) return null
    const message = this.#fromClient.subarray(0, length)
    this.#fromClient = this.#fromClient.subarray(length)
    this.#started = true
    return message
  }

  hold(text: string): void {
    if (this.#statements.some((statement) => statement.startsWith(text))) this.#held ??= []
  }

  release(): void {
    const held = this.#held ?? []
    this.#held = null
    for (const chunk of held) this.#client.write(chunk)
  }

  destroy(): void {
    this.#client.destroy()
    this.#server.destroy()
  }
}

/** The text of a simple query or of a statement to be parsed; empty for other messages. */
function statementOf(message: Buffer): string {
  switch (String.fromCharCode(message[0] ?? 0)) {
    case 'Q':
      return message.toString('utf8', 5, message.length - 1)
    case 'P':
      return message.toString('utf8', message.indexOf(0, 5) + 1)
    default:
      return ''
  }
}
