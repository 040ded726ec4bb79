/**
 * JSON text that came from elsewhere, as a value: what `JSON.parse` should give.
 *
 * V8's parser can take a key for another one. Written with an escape, it is
 * compared as it is written with the key that followed at this place in an
 * object of before: where that was `\`, the key `"` is read as `\`, too. So an
 * event could have the effect of one that nobody sent. Values are not concerned,
 * nor keys without an escape; those are nearly all, and cost a search for one.
 */

/** Throws what `JSON.parse` throws. */
export function parseJson(text: string): unknown {
  const value: unknown = JSON.parse(text)
  return text.includes('\\') && hasEscapedKey(text) ? parseKeysAsValues(text) : value
}

/** Every object as `{ "o": [key, value, …] }`: a string in an array is compared with nothing. `text` is valid. */
function parseKeysAsValues(text: string): unknown {
  let rewritten = ''
  let at = 0
  for (const { start, end } of literals(text)) {
    rewritten += pairsIn(text.slice(at, start)) + text.slice(start, end)
    at = end
  }
  return pairsAsObjects(JSON.parse(rewritten + pairsIn(text.slice(at))))
}

const structure: Readonly<Record<string, string>> = { '{': '{"o":[', '}': ']}', ':': ',' }

function pairsIn(outside: string): string {
  return outside.replaceAll(/[{}:]/g, (mark) => structure[mark] ?? mark)
}

/**
 * Undoes what `parseKeysAsValues` has made of every object, from the outside in.
 * With a list of what is still to be looked at, since the parser takes any depth
 * of nesting and a reviver, or a function that calls itself, does not.
 */
function pairsAsObjects(parsed: unknown): unknown {
  const root = { parsed }
  const open: object[] = [root]
  for (let parent = open.pop(); parent !== undefined; parent = open.pop()) {
    for (const [key, child] of Object.entries(parent)) {
      if (typeof child !== 'object' || child === null) continue
      const value = Array.isArray(child) ? child : objectOf(child)
      // The key is the parent's own, so `__proto__` changes no prototype.
      Reflect.set(parent, key, value)
      open.push(value)
    }
  }
  return root.parsed
}

function objectOf({ o: flat }: { readonly o: readonly unknown[] }): object {
  const pairs = Array.from({ length: flat.length / 2 }, (_, index) => [flat[2 * index], flat[2 * index + 1]] as const)
  // Like the parser, it makes `__proto__` a key as any other, and lets the last of two equal keys win.
  return Object.fromEntries(pairs as readonly (readonly [string, unknown])[])
}

function hasEscapedKey(text: string): boolean {
  let nextEscape = text.indexOf('\\')
  for (const { start, end } of literals(text)) {
    if (nextEscape < start) nextEscape = text.indexOf('\\', start)
    if (nextEscape < 0) return false
    if (nextEscape < end && isKey(text, end)) return true
  }
  return false
}

const COLON_NEXT = /[ \t\n\r]*:/y

function isKey(text: string, end: number): boolean {
  COLON_NEXT.lastIndex = end
  return COLON_NEXT.test(text)
}

/** Where the string literals of valid JSON begin and end. */
function* literals(text: string): Iterable<{ readonly start: number; readonly end: number }> {
  for (let start = text.indexOf('"'); start >= 0; ) {
    let close = text.indexOf('"', start + 1)
    while (isEscaped(text, close)) close = text.indexOf('"', close + 1)
    yield { start, end: close + 1 }
    start = text.indexOf('"', close + 1)
  }
}

/** Whether the character at `at` follows an odd number of backslashes. */
function isEscaped(text: string, at: number): boolean {
  let backslashes = 0
  while (text[at - 1 - backslashes] === '\\') backslashes += 1
  return backslashes % 2 === 1
}
