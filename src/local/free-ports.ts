/** Ports on loopback that nobody uses. */
import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * `count` different free ports of 127.0.0.1.
 *
 * They lie below the range from which systems give ports to outgoing
 * connections, so that a server may end, and come back to the port it had.
 */
export async function freePorts(count: number): Promise<number[]> {
  const ports = new Set<number>()
  while (ports.size < count) {
    const port = 15_000 + Math.floor(Math.random() * 17_000)
    if (await portIsFree(port)) ports.add(port)
  }
  return [...ports]
}

/** Whether a server could listen on `port` of 127.0.0.1 now. */
export async function portIsFree(port: number): Promise<boolean> {
  const server = createServer()
  try {
    server.listen({ port, host: '127.0.0.1', exclusive: true })
    await once(server, 'listening')
    return true
  } catch {
    return false
  } finally {
    server.close()
  }
}

/** `usual`, which people know, where it is free, and another where it is not. */
export async function usualPort(usual: number): Promise<number> {
  const [other = 0] = await freePorts(1)
  return (await portIsFree(usual)) ? usual : other
}
