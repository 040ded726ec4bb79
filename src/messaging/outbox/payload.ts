/**
 * Turns an event's payload into the JSON text that is stored.
 *
 * As `JSON.stringify` does it, except that what it would change in silence, and
 * what Postgres cannot store, is refused: better a mutation that fails than an
 * event that says something else.
 */
import { types } from 'node:util'
import type { RawJson } from '../envelope.ts'

const ZERO = 'holds the zero character, which Postgres cannot store'
const HALF_PAIR = 'holds half of a surrogate pair, which UTF-8 cannot carry'
const ESCAPE_LENGTH = '\\u0000'.length

/** Why a payload cannot be stored, as the end of a sentence that begins with the field. Never holds a value. */
export class UnstorablePayload extends Error {
  override readonly name = 'UnstorablePayload'
}

/** JSON text of `payload`; `null` for a tombstone. Throws {@link UnstorablePayload}. */
export function payloadText(payload: unknown): string | null {
  if (payload === null) return null
  if (payload === undefined) throw new UnstorablePayload('is missing; null is a tombstone, rawJson("null") a JSON null')
  return isRawJson(payload) ? rawText(payload.rawJson) : stringify(payload)
}

/** What is wrong with `text` for Postgres, as the end of a sentence; `null` if nothing. */
export function unstorableText(text: string): string | null {
  if (text.includes('\0')) return ZERO
  return text.isWellFormed() ? null : HALF_PAIR
}

function isRawJson(payload: unknown): payload is RawJson {
  if (typeof payload !== 'object' || payload === null) return false
  const keys = Object.keys(payload)
  return keys.length === 1 && keys[0] === 'rawJson' && typeof (payload as RawJson).rawJson === 'string'
}

function rawText(text: string): string {
  try {
    JSON.parse(text)
  } catch {
    // The parser's own message quotes the text.
    throw new UnstorablePayload('is raw JSON that does not parse')
  }
  const problem = unstorableText(text) ?? unstorableEscape(text)
  if (problem !== null) throw new UnstorablePayload(problem)
  return text
}

function stringify(payload: unknown): string {
  let text: string | undefined
  try {
    text = JSON.stringify(payload, refuseSilentChanges)
  } catch (error) {
    if (error instanceof UnstorablePayload) throw error
    throw new UnstorablePayload('cannot be written as JSON', { cause: error })
  }
  if (text === undefined) throw new UnstorablePayload('has no JSON form')
  // JSON.stringify escapes control characters and lone surrogates, nothing else.
  const problem = text.includes('\\u') ? unstorableEscape(text) : null
  if (problem !== null) throw new UnstorablePayload(problem)
  return text
}

/** A replacer that replaces nothing. `this` is the holder, so that a value can be seen before its `toJSON`. */
function refuseSilentChanges(this: unknown, key: string, value: unknown): unknown {
  const refuse = (what: string): never => {
    throw new UnstorablePayload(key === '' ? what : `${what}, at ${JSON.stringify(key)}`)
  }

  switch (typeof value) {
    case 'number':
      return Number.isFinite(value) ? value : refuse('holds NaN or an infinity, which JSON does not have')
    case 'bigint':
      return refuse('holds a bigint, which JSON.stringify refuses; give the whole payload as rawJson(text)')
    case 'function':
    case 'symbol':
      return refuse(`holds a ${typeof value}, which JSON does not have`)
    case 'undefined':
      return Array.isArray(this) ? refuse('holds undefined in an array, which would become null') : value
    case 'object':
      if (value === null) {
        const before = (this as Record<string, unknown>)[key]
        return types.isDate(before) ? refuse('holds an invalid Date, which would become null') : value
      }
      return losesItsContent(value)
        ? refuse(`holds a ${value.constructor?.name || 'class instance'}, which would become {}`)
        : value
    default:
      return value
  }
}

/** Maps, sets, promises that nobody awaited, regular expressions: objects that JSON shows as empty. */
function losesItsContent(value: object): boolean {
  if (Array.isArray(value) || types.isBoxedPrimitive(value) || Object.keys(value).length > 0) return false
  const prototype: unknown = Object.getPrototypeOf(value)
  // The prototype of a plain object, of whatever realm, has none itself.
  return prototype !== null && Object.getPrototypeOf(prototype) !== null
}

/** Finds the escapes that jsonb refuses: the zero character, and surrogates that are not a pair. */
function unstorableEscape(text: string): string | null {
  let high = -1
  // Consumes escapes one by one, so that the second half of `\\\\` begins none.
  for (const { 1: hex, index } of text.matchAll(/\\(?:u([0-9a-fA-F]{4})|.)/gs)) {
    const unit = hex === undefined ? -1 : Number.parseInt(hex, 16)
    const isLow = unit >= 0xdc00 && unit <= 0xdfff
    const expectsLow = high >= 0
    if (isLow !== expectsLow || (isLow && index !== high + ESCAPE_LENGTH)) return HALF_PAIR
    if (unit === 0) return ZERO
    high = unit >= 0xd800 && unit <= 0xdbff ? index : -1
  }
  return high >= 0 ? HALF_PAIR : null
}
