/**
 * The two ends of one connection through a proxy: in clear, or over TLS on both
 * sides, where the proxy holds a server's certificate and so reads what passes.
 * The broker behind it has a handshake of its own, for which the client waits:
 * a broker that does not answer looks frozen to it from the first byte.
 */
import { connect, type Socket } from 'node:net'
import { type SecureContext, connect as secureConnect, TLSSocket } from 'node:tls'

/** One end. */
export interface End {
  /** What is read and written in clear. */
  readonly stream: Socket
  /** What can be reset: a stream over TLS cannot. */
  readonly socket: Socket
}

/** How a proxy speaks TLS: as the server, and with the server behind it. */
export interface ProxyTls {
  /** The server's key and certificate. */
  readonly context: SecureContext
  /** What the broker's certificate is verified with. */
  readonly ca: string
}

/** Connects `client` with the broker at `port`; `join` is told both ends once they speak. */
export function openEnds(
  client: Socket,
  port: number,
  { tls, join }: { readonly tls: ProxyTls | null; readonly join: (client: End, broker: End) => void },
): Socket {
  const broker = connect(port, '127.0.0.1')
  if (tls === null) {
    join({ stream: client, socket: client }, { stream: broker, socket: broker })
    return broker
  }
  const toBroker = secureConnect({ socket: broker, host: '127.0.0.1', ca: tls.ca })
  toBroker.on('error', () => broker.destroy())
  toBroker.once('secureConnect', () => {
    const toClient = new TLSSocket(client, { isServer: true, secureContext: tls.context })
    toClient.on('error', () => client.destroy())
    join({ stream: toClient, socket: client }, { stream: toBroker, socket: broker })
  })
  return broker
}
