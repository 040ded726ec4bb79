/** A certificate authority and a server certificate of its own for 127.0.0.1, made where TLS is to be tried. */
import { execFile } from 'node:child_process'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { StackError } from './stack-error.ts'

const run = promisify(execFile)

/** All PEM. */
export interface ServerCertificate {
  /** What a client must trust. */
  readonly ca: string
  readonly certificate: string
  /** PKCS#8, without a password. */
  readonly key: string
}

/** Makes both in `dir`, valid for a day and for `127.0.0.1` and `localhost`. Throws {@link StackError} without openssl. */
export async function createCertificate(dir: string): Promise<ServerCertificate> {
  await mkdir(dir, { recursive: true, mode: 0o700 })
  const path = (name: string) => join(dir, name)
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-noenc']
  await openssl([
    'req',
    '-x509',
    ...newKey,
    '-keyout',
    path('ca.key'),
    '-out',
    path('ca.pem'),
    '-days',
    '1',
    '-subj',
    '/CN=local test CA',
  ])
  await openssl(['req', ...newKey, '-keyout', path('server.key'), '-out', path('server.csr'), '-subj', '/CN=localhost'])
  await writeFile(path('san.cnf'), 'subjectAltName=IP:127.0.0.1,DNS:localhost\n')
  const issuer = [
    '-CA',
    path('ca.pem'),
    '-CAkey',
    path('ca.key'),
    '-CAcreateserial',
    '-extfile',
    path('san.cnf'),
    '-days',
    '1',
  ]
  await openssl(['x509', '-req', '-in', path('server.csr'), ...issuer, '-out', path('server.pem')])
  const [ca = '', certificate = '', key = ''] = await Promise.all(
    ['ca.pem', 'server.pem', 'server.key'].map((name) => readFile(path(name), 'utf8')),
  )
  // Nothing else is ever to be signed by this authority.
  await rm(path('ca.key'))
  return { ca, certificate, key }
}

async function openssl(args: string[]): Promise<void> {
  try {
    await run('openssl', args)
  } catch (cause) {
    const { code, stderr } = cause as { code?: unknown; stderr?: string }
    const missing = code === 'ENOENT' ? 'it is not installed (Debian: apt install openssl)' : stderr?.trim()
    throw new StackError(`openssl could not make a certificate: ${missing}`, { cause })
  }
}
