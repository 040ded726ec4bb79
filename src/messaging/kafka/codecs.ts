/**
 * Compression that topics may use. kafkajs carries gzip alone, and a consumer
 * of it stops for good at the first record of any other kind; a topic with
 * `compression.type` set makes the broker write such records itself.
 */
import { promisify } from 'node:util'
import { zstdCompress, zstdDecompress } from 'node:zlib'
import kafkajs from 'kafkajs'
import snappy from 'kafkajs-snappy'
import lz4 from 'lz4js'

/** kafkajs hands over an object with the encoded bytes. */
interface Encoded {
  readonly buffer: Buffer
}

interface Codec {
  compress(encoded: Encoded): Promise<Buffer>
  decompress(bytes: Buffer): Promise<Buffer>
}

const zstd: Codec = {
  compress: async ({ buffer }) => await promisify(zstdCompress)(buffer),
  decompress: async (bytes) => await promisify(zstdDecompress)(bytes),
}

const lz4Frame: Codec = {
  compress: async ({ buffer }) => Buffer.from(lz4.compress(buffer)),
  decompress: async (bytes) => Buffer.from(lz4.decompress(bytes)),
}

/** Registers snappy, lz4 and zstd for all kafkajs clients of the process, where the application has not done so itself. */
export function registerCodecs(): void {
  const { CompressionCodecs, CompressionTypes } = kafkajs
  const ours: readonly (readonly [number, () => Codec])[] = [
    [CompressionTypes.Snappy, snappy],
    [CompressionTypes.LZ4, () => lz4Frame],
    [CompressionTypes.ZSTD, () => zstd],
  ]
  const codecs = CompressionCodecs as unknown as Record<number, () => Codec>
  for (const [type, codec] of ours) {
    if (!isRegistered(codecs[type])) codecs[type] = codec
  }
}

function isRegistered(codec: (() => Codec) | undefined): boolean {
  try {
    return codec?.() !== undefined
  } catch {
    return false
  }
}
