/** What we use of the packages that bring no types. */
declare module 'kafkajs-snappy' {
  export default function snappy(): {
    compress(encoded: { readonly buffer: Buffer }): Promise<Buffer>
    decompress(bytes: Buffer): Promise<Buffer>
  }
}

declare module 'lz4js' {
  export function compress(bytes: Uint8Array): Uint8Array
  export function decompress(bytes: Uint8Array): Uint8Array
  const lz4: { compress: typeof compress; decompress: typeof decompress }
  export default lz4
}
