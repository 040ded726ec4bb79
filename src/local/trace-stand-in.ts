/**
 * Takes spans where no Jaeger does yet, and drops them: a service that is told
 * of a collector from the beginning would warn of each one that it cannot send.
 */
import { once } from 'node:events'
import { createServer } from 'node:http'

/**
 * Answers on `port` of 127.0.0.1 until it is disposed of, when the port is free
 * again. Rejects with the system's own error when it cannot listen.
 */
export async function standInForJaeger(port: number): Promise<AsyncDisposable> {
  const server = createServer((request, response) => {
    request.resume()
    // An empty answer says in protobuf that all was taken; the next request finds whoever listens then.
    request.once('end', () => response.writeHead(200, ANSWER).end())
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  return {
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close')
      server.close()
      server.closeAllConnections()
      await closed
    },
  }
}

const ANSWER = { 'content-type': 'application/x-protobuf', connection: 'close' }
