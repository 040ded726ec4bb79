/**
 * Turns a read of many keys into a read of one, without a query for each: the
 * keys that resolvers ask for in one turn of the event loop are read together.
 */

/** `readMany` gets distinct keys and returns their values in the same order. Nothing is kept for later turns. */
export function batched<Value>(
  readMany: (keys: readonly string[]) => Promise<readonly Value[]>,
): (key: string) => Promise<Value> {
  let current: Promise<ReadonlyMap<string, Value>> | null = null
  let keys = new Set<string>()

  async function readAll(): Promise<ReadonlyMap<string, Value>> {
    await new Promise(setImmediate)
    const wanted = [...keys]
    current = null
    keys = new Set()
    const values = await readMany(wanted)
    return new Map(values.map((value, index) => [wanted[index] ?? '', value]))
  }

  return async (key) => {
    keys.add(key)
    current ??= readAll()
    const values = await current
    if (!values.has(key)) throw new Error('A batched read returned fewer values than it was given keys')
    return values.get(key) as Value
  }
}
