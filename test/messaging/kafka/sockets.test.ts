import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, test } from '@jest/globals'
import { Sockets } from '../../../src/messaging/kafka/sockets.ts'

test('what fails with a client that was given up says so', async () => {
  await using server = createServer(() => {})
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  const sockets = new Sockets()
  const socket = sockets.open({ host: '127.0.0.1', port, ssl: undefined, onConnect: () => {} })
  const failed = once(socket, 'error')

  sockets.cutOff()

  expect(await failed).toMatchObject([{ code: 'CLIENT_GIVEN_UP' }])
  expect(() => sockets.open({ host: '127.0.0.1', port, ssl: undefined, onConnect: () => {} })).toThrow('given up')
})

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
