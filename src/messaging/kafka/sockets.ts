/**
 * The sockets of one client, with what kafkajs lacks: an end to them. Its
 * `disconnect()` stops no send that is being retried; closing the sockets and
 * opening no further ones does.
 */
import net from 'node:net'
import tls, { type ConnectionOptions } from 'node:tls'

const KEEP_ALIVE_MS = 60_000

/** What kafkajs asks for when it opens a connection. */
interface SocketRequest {
  readonly host: string
  readonly port: number
  readonly ssl: ConnectionOptions | undefined
  readonly onConnect: () => void
}

/** How a handshake ends with a peer that takes its first bytes for something else. */
const NOT_UNDERSTOOD = new Set(['ECONNRESET', 'EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER'])

/** The code that goes for such an end, and becomes the reason of the outage: the bare one names no cause. */
const PLAINTEXT_PERHAPS = 'NO_TLS_HANDSHAKE_PORT_MAY_BE_PLAINTEXT'

/** What is left of a client that nobody waits for any more. Its code becomes the reason of what fails with it. */
class GivenUpError extends Error {
  override readonly name = 'GivenUpError'
  readonly code = 'CLIENT_GIVEN_UP'

  constructor() {
    super('This client has been given up')
  }
}

/** Opens a client's sockets until it is cut off. */
export class Sockets {
  readonly #open = new Set<net.Socket>()
  #cut = false

  /** Given to kafkajs as `socketFactory`. Throws once the client is cut off. */
  readonly open = ({ host, port, ssl, onConnect }: SocketRequest): net.Socket => {
    if (this.#cut) throw new GivenUpError()
    const name = net.isIP(host) === 0 ? { servername: host } : {}
    const socket = ssl
      ? withHint(tls.connect({ host, port, ...name, ...ssl }, onConnect))
      : net.connect({ host, port }, onConnect)
    socket.setKeepAlive(true, KEEP_ALIVE_MS)
    socket.setNoDelay(true)
    this.#open.add(socket)
    socket.once('close', () => this.#open.delete(socket))
    return socket
  }

  /**
   * Closes all sockets and opens no more: whatever the client retries then
   * fails. Bytes that the kernel has may still arrive at the broker.
   */
  cutOff(): void {
    this.#cut = true
    // With an error, as kafkajs does not listen for a mere close.
    for (const socket of this.#open) socket.destroy(new GivenUpError())
  }
}

/** Gives the end of a handshake that was not understood a code of its own. */
function withHint(socket: tls.TLSSocket): tls.TLSSocket {
  const hint = (error: NodeJS.ErrnoException) => {
    if (NOT_UNDERSTOOD.has(error.code ?? '')) error.code = PLAINTEXT_PERHAPS
  }
  socket.prependListener('error', hint)
  socket.once('secureConnect', () => socket.off('error', hint))
  return socket
}
