/** The Postgres server that global-setup started for this run of the tests. */

/** A superuser's connection string. @defaultValue database `postgres` */
export function testPostgresUrl(database = 'postgres'): string {
  const base = process.env.TEST_POSTGRES_URL
  if (!base) throw new Error('TEST_POSTGRES_URL is not set: run tests with npm run jest')
  const url = new URL(base)
  url.pathname = database
  return url.href
}
