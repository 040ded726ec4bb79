/**
 * Who answers at a broker's port: its cluster and that cluster's live brokers.
 *
 * One request of Kafka's protocol (Metadata, version 4) over a bare socket: a
 * client library would retry, log and keep connections, where a yes or no is
 * wanted every few milliseconds while a broker starts.
 */
import { once } from 'node:events'
import { createConnection } from 'node:net'

export interface ClusterFacts {
  readonly clusterId: string | null
  /** Ids of the brokers that are registered and not fenced. */
  readonly brokerIds: readonly number[]
}

const METADATA = 3
const VERSION = 4

/** Asks the plaintext listener at `port` of 127.0.0.1; null when nobody answers within `timeoutMs` or the answer is not Kafka's. */
export async function askCluster(port: number, { timeoutMs = 2_000 } = {}): Promise<ClusterFacts | null> {
  const socket = createConnection({ port, host: '127.0.0.1' })
  const signal = AbortSignal.timeout(timeoutMs)
  try {
    await once(socket, 'connect', { signal })
    socket.write(metadataRequest())
    let answer = Buffer.alloc(0)
    while (answer.length < 4 || answer.length < 4 + answer.readInt32BE(0)) {
      const [chunk] = (await once(socket, 'data', { signal })) as [Buffer]
      answer = Buffer.concat([answer, chunk])
    }
    return readMetadata(answer.subarray(8))
  } catch {
    return null
  } finally {
    socket.destroy()
  }
}

function metadataRequest(): Buffer {
  const request = Buffer.alloc(4 + 10 + 5)
  request.writeInt32BE(request.length - 4, 0)
  request.writeInt16BE(METADATA, 4)
  request.writeInt16BE(VERSION, 6)
  request.writeInt32BE(1, 8) // the correlation id
  request.writeInt16BE(-1, 12) // no client id
  request.writeInt32BE(0, 14) // no topics
  request.writeInt8(0, 18) // create none
  return request
}

function readMetadata(body: Buffer): ClusterFacts {
  let at = 4 // past the throttle time
  const int32 = () => {
    at += 4
    return body.readInt32BE(at - 4)
  }
  const string = () => {
    const length = body.readInt16BE(at)
    at += 2 + Math.max(length, 0)
    return length < 0 ? null : body.toString('utf8', at - length, at)
  }
  const brokerIds = Array.from({ length: int32() }, () => {
    const id = int32()
    string() // host
    int32() // port
    string() // rack
    return id
  })
  return { clusterId: string(), brokerIds }
}
