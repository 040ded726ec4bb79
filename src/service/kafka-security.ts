/** How the process proves itself to Kafka, and Kafka to it: TLS and SASL, from the environment's variables. */
import { execFile } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import type { ConnectionOptions } from 'node:tls'
import { promisify } from 'node:util'

/** What the Kafka driver takes. */
export interface KafkaSecurity {
  readonly ssl?: ConnectionOptions
  readonly sasl?: KafkaSasl
}

export type KafkaSasl =
  | {
      readonly mechanism: 'plain' | 'scram-sha-256' | 'scram-sha-512'
      readonly username: string
      readonly password: string
    }
  /** Asked anew for each connection and each re-authentication, so that tokens may be short-lived. */
  | { readonly mechanism: 'oauthbearer'; readonly token: () => Promise<string> }

interface SecurityVariables {
  readonly KAFKA_TLS: boolean
  readonly KAFKA_CA?: string | undefined
  readonly KAFKA_CERT?: string | undefined
  readonly KAFKA_KEY?: string | undefined
  readonly KAFKA_SASL_MECHANISM?: 'plain' | 'scram-sha-256' | 'scram-sha-512' | 'oauthbearer' | undefined
  readonly KAFKA_SASL_USERNAME?: string | undefined
  readonly KAFKA_SASL_PASSWORD?: string | undefined
  readonly KAFKA_SASL_PASSWORD_FILE?: string | undefined
  readonly KAFKA_OAUTH_TOKEN_FILE?: string | undefined
  readonly KAFKA_OAUTH_TOKEN_COMMAND?: string | undefined
}

/** Milliseconds that a token command may take. */
const TOKEN_COMMAND_TIMEOUT_MS = 10_000

/** The driver's options, or what is wrong with the variables: by name, never by value. */
export function kafkaSecurity(env: SecurityVariables): { options: KafkaSecurity; problems: readonly string[] } {
  const problems = [...tlsProblems(env), ...saslProblems(env)]
  if (problems.length > 0) return { options: {}, problems }
  const ssl = tlsOf(env)
  const sasl = saslOf(env)
  return { options: { ...(ssl && { ssl }), ...(sasl && { sasl }) }, problems }
}

function tlsProblems({ KAFKA_TLS, KAFKA_CA, KAFKA_CERT, KAFKA_KEY }: SecurityVariables): readonly string[] {
  const problems: string[] = []
  if (!KAFKA_TLS && (KAFKA_CA ?? KAFKA_CERT ?? KAFKA_KEY) !== undefined) {
    problems.push('KAFKA_TLS must be true when KAFKA_CA, KAFKA_CERT or KAFKA_KEY is set, or they would not be used')
  }
  if ((KAFKA_CERT === undefined) !== (KAFKA_KEY === undefined))
    problems.push('KAFKA_CERT and KAFKA_KEY must be set together')
  return problems
}

function saslProblems(env: SecurityVariables): readonly string[] {
  const { KAFKA_SASL_MECHANISM: mechanism, KAFKA_SASL_USERNAME, KAFKA_SASL_PASSWORD, KAFKA_SASL_PASSWORD_FILE } = env
  const { KAFKA_OAUTH_TOKEN_FILE, KAFKA_OAUTH_TOKEN_COMMAND } = env
  const passwords = [KAFKA_SASL_PASSWORD, KAFKA_SASL_PASSWORD_FILE].filter((text) => text !== undefined).length
  const tokens = [KAFKA_OAUTH_TOKEN_FILE, KAFKA_OAUTH_TOKEN_COMMAND].filter((text) => text !== undefined).length
  if (mechanism === undefined) {
    const unused = KAFKA_SASL_USERNAME !== undefined || passwords + tokens > 0
    return unused
      ? ['KAFKA_SASL_MECHANISM must be set, or the other KAFKA_SASL_ and KAFKA_OAUTH_ variables would not be used']
      : []
  }
  if (mechanism === 'oauthbearer') {
    if (!env.KAFKA_TLS) return [cleartext(mechanism)]
    return tokens === 1
      ? []
      : ['KAFKA_OAUTH_TOKEN_FILE or KAFKA_OAUTH_TOKEN_COMMAND, one of them, must be set for oauthbearer']
  }
  const problems = mechanism === 'plain' && !env.KAFKA_TLS ? [cleartext(mechanism)] : []
  if (KAFKA_SASL_USERNAME === undefined) problems.push(`KAFKA_SASL_USERNAME must be set for ${mechanism}`)
  if (passwords !== 1) {
    problems.push(`KAFKA_SASL_PASSWORD or KAFKA_SASL_PASSWORD_FILE, one of them, must be set for ${mechanism}`)
  }
  return problems
}

function cleartext(mechanism: string): string {
  return `KAFKA_TLS must be true for ${mechanism}, which shows the credentials to whoever listens`
}

function tlsOf({ KAFKA_TLS, KAFKA_CA, KAFKA_CERT, KAFKA_KEY }: SecurityVariables): ConnectionOptions | null {
  if (!KAFKA_TLS) return null
  return {
    // Said outright, or NODE_TLS_REJECT_UNAUTHORIZED=0 would switch it off.
    rejectUnauthorized: true,
    ...(KAFKA_CA !== undefined && { ca: KAFKA_CA }),
    ...(KAFKA_CERT !== undefined && { cert: KAFKA_CERT }),
    ...(KAFKA_KEY !== undefined && { key: KAFKA_KEY }),
  }
}

function saslOf(env: SecurityVariables): KafkaSasl | null {
  const { KAFKA_SASL_MECHANISM: mechanism, KAFKA_SASL_USERNAME: username = '' } = env
  if (mechanism === undefined) return null
  if (mechanism === 'oauthbearer') return { mechanism, token: async () => await readToken(env) }
  return { mechanism, username, password: env.KAFKA_SASL_PASSWORD ?? env.KAFKA_SASL_PASSWORD_FILE ?? '' }
}

async function readToken({
  KAFKA_OAUTH_TOKEN_FILE: path,
  KAFKA_OAUTH_TOKEN_COMMAND: command,
}: SecurityVariables): Promise<string> {
  if (path !== undefined) return (await readFile(path, 'utf8')).trim()
  const { stdout } = await promisify(execFile)('/bin/sh', ['-c', command ?? ''], { timeout: TOKEN_COMMAND_TIMEOUT_MS })
  return stdout.trim()
}
