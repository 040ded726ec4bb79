import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, test } from '@jest/globals'
import { Sockets } from '../../../src/messaging/kafka/sockets.ts'

test.each([
  ['over TLS the port is said to be plaintext, perhaps', {}, 'NO_TLS_HANDSHAKE_PORT_MAY_BE_PLAINTEXT'],
  ['in clear it stays what it is', undefined, 'ECONNRESET'],
])('where a broker ends a connection at its first bytes, %s', async (_, ssl, code) => {
  await using server = createServer((socket) => socket.once('data', () => socket.resetAndDestroy()))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }

  const socket = new Sockets().open({ host: '127.0.0.1', port, ssl, onConnect: () => {} })
  socket.write('a request')

  const [error] = await once(socket, 'error').catch((thrown: unknown) => [thrown])
  expect(error).toMatchObject({ code })
})
