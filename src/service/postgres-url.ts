/**
 * Reads a Postgres URL into what the driver takes, TLS included.
 *
 * The driver's own reading of `sslmode` differs from libpq's, changes between
 * releases, and can be overruled by the environment. So it is read here, and
 * what would quietly be weaker than it sounds is refused.
 */
import { readFileSync } from 'node:fs'
import type { ConnectionOptions } from 'node:tls'

/** A server and how to reach it. `ssl` is always said, so that nothing else decides it. */
export interface PostgresConnection {
  readonly host: string
  readonly port: number
  readonly user: string
  readonly password?: string
  readonly database: string
  readonly ssl: false | ConnectionOptions
  /** Server settings for each session, such as `-c search_path=events`. */
  readonly options?: string
}

/** A URL that cannot be used. The message names the part and the rule, never the password. */
export class PostgresUrlError extends Error {
  override readonly name = 'PostgresUrlError'
}

const KNOWN = new Set(['host', 'sslmode', 'sslrootcert', 'sslcert', 'sslkey', 'options', 'application_name'])

/**
 * Reads `text`: `postgres://user:password@host:port/database`, with `sslmode`
 * (`disable`, `no-verify`, `require`, `verify-ca`, `verify-full`), `sslrootcert`,
 * `sslcert`, `sslkey` (paths), `host` (a socket's folder) and `options`.
 *
 * `require` verifies as `verify-full` does; encryption to whoever answers is
 * called `no-verify`. `prefer` and `allow` are refused: they fall back to plain text.
 *
 * @throws PostgresUrlError when it cannot be used as it stands
 */
export function parsePostgresUrl(text: string): PostgresConnection {
  const url = URL.canParse(text) ? new URL(text) : URL.canParse(withHost(text)) ? new URL(withHost(text)) : null
  if (!url || !['postgres:', 'postgresql:'].includes(url.protocol)) {
    throw new PostgresUrlError('must be a URL such as postgres://user:password@host:5432/database')
  }
  const parameters = Object.fromEntries(url.searchParams)
  const unknown = Object.keys(parameters).find((name) => !KNOWN.has(name))
  if (unknown)
    throw new PostgresUrlError(`has a parameter that is not known: ${unknown}; known are ${[...KNOWN].join(', ')}`)

  const user = decodeURIComponent(url.username)
  const host = parameters.host ?? decodeURIComponent(url.hostname).replace(/^\[(.*)\]$/, '$1')
  if (!user) throw new PostgresUrlError('must name a user')
  if (!host || host === PLACEHOLDER) throw new PostgresUrlError('must name a host')
  return {
    host,
    port: url.port ? Number(url.port) : 5432,
    user,
    ...(url.password && { password: decodeURIComponent(url.password) }),
    database: decodeURIComponent(url.pathname.slice(1)) || user,
    ssl: readTls(parameters),
    ...(parameters.options && { options: parameters.options }),
  }
}

const PLACEHOLDER = 'host.in.parameters'

/** `postgres://user@/database?host=/run/postgresql` is no URL to the standard: it lacks a host. */
function withHost(text: string): string {
  return text.replace(/^(postgres(?:ql)?:\/\/(?:[^/@]*@)?)\//, `$1${PLACEHOLDER}/`)
}

function readTls(parameters: Readonly<Record<string, string | undefined>>): false | ConnectionOptions {
  const { sslmode = 'disable', sslrootcert, sslcert, sslkey } = parameters
  const files = { ca: read('sslrootcert', sslrootcert), cert: read('sslcert', sslcert), key: read('sslkey', sslkey) }
  const given = Object.fromEntries(Object.entries(files).filter(([, content]) => content !== undefined))
  switch (sslmode) {
    case 'disable':
      if (Object.keys(given).length > 0)
        throw new PostgresUrlError('gives certificates, so it must say sslmode=verify-full')
      return false
    case 'no-verify':
      return { ...given, rejectUnauthorized: false }
    case 'verify-ca':
      return { ...given, rejectUnauthorized: true, checkServerIdentity: () => undefined }
    case 'require':
    case 'verify-full':
      // Said outright, or NODE_TLS_REJECT_UNAUTHORIZED=0 would switch it off.
      return { ...given, rejectUnauthorized: true }
    case 'prefer':
    case 'allow':
      throw new PostgresUrlError(`has sslmode=${sslmode}, which falls back to plain text; say verify-full, or disable`)
    default:
      throw new PostgresUrlError('must have an sslmode of disable, no-verify, require, verify-ca or verify-full')
  }
}

function read(parameter: string, path: string | undefined): string | undefined {
  if (path === undefined) return undefined
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new PostgresUrlError(`has a ${parameter} that cannot be read`, { cause: error })
  }
}
