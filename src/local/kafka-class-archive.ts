/**
 * Kafka's classes as Java keeps them ready to map, beside the jars: a broker is
 * up in two thirds of the time. Java leaves the archive aside, without harm, where it
 * does not fit: after an upgrade of Java, say.
 */
import { mkdtemp, rename, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { exists } from './exists.ts'
import { createNode } from './kafka-node.ts'
import { planNodes } from './kafka-plan.ts'

/** Java's arguments to use the archive of `jars`; none where there is none. */
export async function classArchiveArguments(jars: string): Promise<readonly string[]> {
  const archive = archiveOf(jars)
  return (await exists(archive)) ? [`-XX:SharedArchiveFile=${archive}`, '-Xlog:cds=off', '-Xlog:cds+dynamic=off'] : []
}

/** Makes the archive by starting a broker on nothing and stopping it, once. */
export async function archiveClasses(jars: string): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-kafka-'))
  const partial = `${archiveOf(jars)}.${process.pid}`
  const [plan] = await planNodes({ nodes: 1 })
  if (!plan) return
  try {
    const jvm = [`-XX:ArchiveClassesAtExit=${partial}`, '-Xlog:cds=off', '-Xlog:cds+dynamic=off']
    const node = await createNode(plan, {
      dir,
      jars,
      clusterId: 'KafkaClassArchive00000',
      voter: plan,
      brokerCount: 1,
      heapMb: 256,
      jvm,
      secure: null,
      settings: {},
    })
    await node.start()
    // The archive is written while it ends, so no deadline here.
    await node.kill('SIGTERM')
    await rename(partial, archiveOf(jars))
  } catch {
    // It is a convenience; what is wrong with Kafka shows when it is started in earnest.
  } finally {
    await rm(dir, { recursive: true, force: true })
    await rm(partial, { force: true })
  }
}

function archiveOf(jars: string): string {
  return `${jars}.jsa`
}
