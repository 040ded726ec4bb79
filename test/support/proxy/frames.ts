/** Kafka's framing: four bytes of length, then a request or an answer. */

/** What a request says of itself. */
export interface RequestHead {
  readonly apiKey: number
  readonly apiVersion: number
  readonly correlationId: number
}

/** The numbers of the requests that tests name. */
export const api = {
  produce: 0,
  fetch: 1,
  listOffsets: 2,
  metadata: 3,
  offsetCommit: 8,
  heartbeat: 12,
  leaveGroup: 13,
  saslHandshake: 17,
  initProducerId: 22,
} as const

/** Puts a stream's chunks together into whole frames, length included. */
export class Frames {
  #rest: Buffer = Buffer.alloc(0)

  /** The frames that `chunk` completes. */
  push(chunk: Buffer): readonly Buffer[] {
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk])
    const whole: Buffer[] = []
    while (this.#rest.length >= 4) {
      const size = 4 + this.#rest.readInt32BE(0)
      if (this.#rest.length < size) break
      whole.push(this.#rest.subarray(0, size))
      this.#rest = this.#rest.subarray(size)
    }
    return whole
  }
}

/** Reads the head of a request's frame. */
export function headOf(frame: Buffer): RequestHead {
  return { apiKey: frame.readInt16BE(4), apiVersion: frame.readInt16BE(6), correlationId: frame.readInt32BE(8) }
}

/** Which request an answer's frame belongs to. */
export function correlationOf(frame: Buffer): number {
  return frame.readInt32BE(4)
}
