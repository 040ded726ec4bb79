/**
 * One Postgres and one Kafka node for all test files of a run, on free ports,
 * with data in a folder that goes with them. They die with this process.
 */
import { chmod, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startKafka } from '../../src/local/kafka.ts'
import { startPostgres } from '../../src/local/postgres.ts'

/** Where teardown finds what setup started: both run in the process of the test runner. */
export const servers = Symbol.for('graphql-outbox.test-servers')

const prefix = `graphql-outbox-test-`

export default async function setup(): Promise<void> {
  await removeLeftFolders()
  const dir = await mkdtemp(join(tmpdir(), `${prefix}${process.pid}-`))
  await chmod(dir, 0o755)
  await using failed = new AsyncDisposableStack()
  failed.defer(() => rm(dir, { recursive: true, force: true }))
  const starting = [
    startPostgres({ dir: join(dir, 'postgres'), durable: false }).then((server) =>
      failed.adopt(server, () => server.destroy()),
    ),
    startKafka({ dir: join(dir, 'kafka'), heapMb: 384, jvm: ['-XX:TieredStopAtLevel=1'] }).then((server) =>
      failed.adopt(server, () => server.kill()),
    ),
  ] as const
  // Where one fails, the other is waited for and ended: nobody else would do it.
  await Promise.allSettled(starting)
  const [postgres, kafka] = await Promise.all(starting)
  Object.assign(globalThis, { [servers]: failed.move() })
  process.env.TEST_POSTGRES_URL = postgres.url()
  process.env.TEST_KAFKA_BROKERS = kafka.brokers.join()
}

/** Removes folders of runs that were killed: their names carry the process that made them. */
async function removeLeftFolders(): Promise<void> {
  for (const name of await readdir(tmpdir())) {
    const pid = Number(name.startsWith(prefix) ? name.slice(prefix.length).split('-')[0] : Number.NaN)
    if (pid > 0 && !exists(pid)) await rm(join(tmpdir(), name), { recursive: true, force: true })
  }
}

function exists(pid: number): boolean {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
