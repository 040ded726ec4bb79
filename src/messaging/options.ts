/** What holds for all options and arguments: their names exist, one that is `undefined` was not given, and each is what it has to be. */
import type { Knex } from 'knex'
import { InvalidOptionError, NotInTransactionError } from './errors.ts'
import { watchPool } from './transaction/connection.ts'

/**
 * Throws {@link InvalidOptionError} for the first of `options` that is not among
 * `known`: a default would hold in silence where `maxAttemps` was given. Types
 * find only what is written in place, not what is spread or comes from JavaScript.
 * `within` is where they stand, as `threads.`. The value is not shown, since it may be a secret under a name that is misspelt.
 */
export function requireKnown<Options extends object>(
  options: Options,
  known: Readonly<Record<keyof Options, unknown>>,
  within = '',
): void {
  // Plain JavaScript may bring anything, or nothing.
  requireObject(within === '' ? 'options' : within.slice(0, -1), options)
  for (const [option, value] of Object.entries(options)) {
    if (value === undefined || Object.hasOwn(known, option)) continue
    const rule = `left out: there is no such option, only ${Object.keys(known).join(', ')}`
    throw new InvalidOptionError(
      `${within}${option}`,
      value,
      rule,
      typeof value === 'object' ? 'an object' : `a ${typeof value}`,
    )
  }
}

/** Throws {@link InvalidOptionError} unless `value` is an object, and no list. */
export function requireObject(option: string, value: unknown): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new InvalidOptionError(option, value, 'an object')
  }
}

/** `options`, with that of `defaults` for each that was not given. What has no default is left out. */
export function withDefaults<Options extends object, Name extends keyof Options>(
  options: Options,
  defaults: Readonly<Required<Pick<Options, Name>>>,
): Required<Pick<Options, Name>> {
  const given = Object.entries(options).filter(([name, value]) => value !== undefined && Object.hasOwn(defaults, name))
  return { ...defaults, ...Object.fromEntries(given) }
}

/** What a timer of Node takes at most; it makes 1 ms of more. */
const MAX_TIMER_MS = 2 ** 31 - 1

/** Throws {@link InvalidOptionError} unless `value` is a whole number above 0, and one that a timer can take where the name ends with `Ms`. */
export function requireWhole(option: string, value: unknown): void {
  const [most, rule] = option.endsWith('Ms')
    ? [MAX_TIMER_MS, `a positive whole number, at most ${MAX_TIMER_MS}`]
    : [Number.MAX_SAFE_INTEGER, 'a positive whole number']
  if (!(Number.isSafeInteger(value) && Number(value) > 0 && Number(value) <= most)) {
    throw new InvalidOptionError(option, value, rule)
  }
}

/** Throws {@link InvalidOptionError} unless `value` is text, not empty, and without the zero character that Postgres stores nowhere. */
export function requireText(option: string, value: unknown, rule = 'text, not empty'): void {
  if (typeof value !== 'string' || value === '') throw new InvalidOptionError(option, value, rule)
  if (value.includes('\0')) throw new InvalidOptionError(option, value, `${rule}, without a zero character`)
}

/** Throws {@link InvalidOptionError} unless `value` is one of `allowed`. */
export function requireOneOf(option: string, value: unknown, allowed: readonly string[]): void {
  if (!allowed.some((word) => word === value)) throw new InvalidOptionError(option, value, allowed.join(' or '))
}

/** Throws {@link InvalidOptionError} unless `value` is a function, as `rule` says what for. */
export function requireFunction(option: string, value: unknown, rule: string): void {
  if (typeof value !== 'function') throw new InvalidOptionError(option, value, rule)
}

/**
 * Takes a handle from the application, and watches its pool from then on
 * ({@link watchPool}). Throws {@link InvalidOptionError} where it is not over
 * node-postgres: what another driver does with a lost COMMIT or a notification,
 * nobody has tested.
 */
export function usePostgres(db: Knex | undefined): void {
  const { client }: { readonly client?: { readonly driverName?: string } } = db ?? {}
  if (db === undefined || client?.driverName !== 'pg')
    throw new InvalidOptionError('db', client?.driverName ?? db, "a Knex instance whose client is 'pg'")
  watchPool(db)
}

/** Throws {@link NotInTransactionError}: types say the same, yet JavaScript callers and casts exist, and a transaction can have ended. */
export function requireLive(trx: Knex.Transaction, caller: string): void {
  if (trx?.isTransaction !== true) {
    throw new NotInTransactionError(
      `it was given ${typeof trx === 'function' ? 'a plain Knex handle' : 'none'}`,
      caller,
    )
  }
  if (trx.isCompleted()) throw new NotInTransactionError('this one has ended', caller)
}

/** Throws {@link InvalidOptionError} unless `value` can be asked to do what `methods` name, as what `rule` says can. */
export function requireMethods(option: string, value: unknown, methods: readonly string[], rule: string): void {
  const part = (typeof value === 'object' || typeof value === 'function') && value !== null ? value : {}
  if (methods.every((name) => typeof Reflect.get(part, name) === 'function')) return
  throw new InvalidOptionError(option, value, rule)
}

/** Throws {@link InvalidOptionError} unless `logger` was not given or is one. */
export function requireLogger(logger: unknown): void {
  if (logger === undefined) return
  requireMethods('logger', logger, ['debug', 'info', 'warn', 'error'], 'a logger with debug, info, warn and error')
}
