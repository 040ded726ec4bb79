import { expect, test } from '@jest/globals'
import { PostgresUrlError, parsePostgresUrl } from '../../src/service/postgres-url.ts'

const base = 'postgres://user:pass@db.example:6432/orders'

test('a URL is read into its parts', () => {
  expect(parsePostgresUrl('postgresql://us%40er:p%3Ass@db.example/orders?options=-c%20search_path%3Devents')).toEqual({
    host: 'db.example',
    port: 5432,
    user: 'us@er',
    password: 'p:ss',
    database: 'orders',
    ssl: false,
    options: '-c search_path=events',
  })
})

test('a socket folder stands in for a host', () => {
  expect(parsePostgresUrl('postgres://user@/orders?host=/run/postgresql')).toMatchObject({
    host: '/run/postgresql',
    database: 'orders',
  })
})

test.each([
  ['', false],
  ['?sslmode=disable', false],
  ['?sslmode=no-verify', { rejectUnauthorized: false }],
  ['?sslmode=require', { rejectUnauthorized: true }],
  ['?sslmode=verify-full', { rejectUnauthorized: true }],
  ['?sslmode=verify-ca', { rejectUnauthorized: true, checkServerIdentity: expect.any(Function) }],
])('%s means what it says', (query, ssl) => {
  expect(parsePostgresUrl(base + query).ssl).toEqual(ssl)
})

test.each([
  ['?sslmode=prefer', 'falls back to plain text'],
  ['?sslmode=allow', 'falls back to plain text'],
  ['?sslmode=verify_full', 'must have an sslmode of'],
  ['?sslMode=verify-full', 'a parameter that is not known: sslMode'],
  ['?ssl=true', 'a parameter that is not known: ssl'],
  ['?sslmode=verify-full&sslrootcert=/no/such/file', 'an sslrootcert that cannot be read'.replace('an ', 'a ')],
  ['?sslrootcert=package.json', 'must say sslmode=verify-full'],
])('%s is refused, since it would be weaker than it looks', (query, message) => {
  expect(() => parsePostgresUrl(base + query)).toThrow(PostgresUrlError)
  expect(() => parsePostgresUrl(base + query)).toThrow(message)
})

test.each(['orders', 'http://user@db/orders', 'postgres://db.example/orders', 'postgres:///orders'])(
  '%s is no address',
  (url) => {
    expect(() => parsePostgresUrl(url)).toThrow(PostgresUrlError)
  },
)
