/** One process of a local Kafka cluster: its folder, its settings and the proof that it is the one that answers. */
import { execFile } from 'node:child_process'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { inheritedEnv } from './config.ts'
import { exists } from './exists.ts'
import { askCluster } from './kafka-metadata.ts'
import { DATA_FOLDER, KEY_STORE_FILE, type NodePlan, type SecureListener, serverProperties } from './kafka-settings.ts'
import { endLeftover } from './leftover.ts'
import { OwnedServer } from './owned-server.ts'
import { StackError } from './stack-error.ts'

const run = promisify(execFile)
const logging = fileURLToPath(new URL('../../stack/kafka/log4j2.properties', import.meta.url))

/** Java reads paths by the locale, and `C` would lose what is not ASCII. */
const UTF8 = { LC_ALL: 'C.UTF-8' }

/** What all nodes of a cluster share. */
export interface NodeContext {
  readonly dir: string
  readonly jars: string
  readonly clusterId: string
  readonly voter: NodePlan
  readonly brokerCount: number
  readonly heapMb: number
  readonly jvm: readonly string[]
  readonly secure: SecureListener | null
  readonly settings: Readonly<Record<string, string | number | boolean>>
}

/** The folder of everything that a node writes. */
export function nodeFolder(clusterFolder: string, id: number): string {
  return join(clusterFolder, `node-${id}`)
}

/** Prepares a node's folder, ends what an earlier start left in it, and hands back the server, not started. */
export async function createNode(plan: NodePlan, context: NodeContext): Promise<OwnedServer> {
  const { jars, clusterId, voter, heapMb, jvm } = context
  const dir = nodeFolder(context.dir, plan.id)
  await mkdir(dir, { recursive: true })
  const properties = join(dir, 'server.properties')
  const pidFile = join(dir, 'kafka.pid')
  const name = plan.roles === 'controller' ? 'Kafka controller' : `Kafka node ${plan.id}`
  await endLeftover({ name, pidFile, commandHolds: `kafka.Kafka ${properties}`, stopSignal: 'SIGTERM' })

  const logFile = join(dir, 'kafka.log')
  if (context.secure) await writeFile(join(dir, KEY_STORE_FILE), context.secure.keyStore, { mode: 0o600 })
  const cluster = { ...context, voter: `${voter.id}@127.0.0.1:${voter.ports.controller}` }
  await writeFile(properties, serverProperties(plan, cluster), { mode: 0o600 })
  const quiet = [`-Dlog4j2.configurationFile=${logging}`, `-Dkafka.logFile=${logFile}`, '-Djava.awt.headless=true']
  const java = ['-XX:+UseSerialGC', ...quiet]
  const classPath = ['-cp', join(jars, '*')]
  const once = [...java, '-XX:TieredStopAtLevel=1', ...archiveOf(jvm), ...classPath]
  const prepare = () => format(dir, { clusterId, properties, secure: context.secure, java: once })
  await prepare()

  const heap = plan.roles === 'controller' ? 128 : heapMb
  return new OwnedServer({
    name,
    command: ['java', `-Xmx${heap}m`, ...java, ...jvm, ...classPath, 'kafka.Kafka', properties],
    cwd: dir,
    env: UTF8,
    logFile: join(dir, 'console.log'),
    errorLogFile: logFile,
    pidFile,
    stopSignal: 'SIGTERM',
    graceSeconds: 15,
    prepare,
    answers: () => answersAs(plan, clusterId),
    startTimeoutMs: 90_000,
  })
}

/** The class archive serves the tool that prepares the folder as well; it must not write one. */
function archiveOf(jvm: readonly string[]): readonly string[] {
  return jvm.filter((argument) => argument.startsWith('-XX:SharedArchiveFile=') || argument.startsWith('-Xlog:cds'))
}

interface FormatOptions {
  readonly clusterId: string
  readonly properties: string
  readonly secure: SecureListener | null
  readonly java: readonly string[]
}

/** Prepares a node's data the first time; an interrupted one has no meta.properties and is made anew. */
async function format(dir: string, { clusterId, properties, secure, java }: FormatOptions): Promise<void> {
  const data = join(dir, DATA_FOLDER)
  if (await exists(join(data, 'meta.properties'))) return
  await rm(data, { recursive: true, force: true })
  const users = (['SCRAM-SHA-256', 'SCRAM-SHA-512'] as const).flatMap((mechanism) =>
    secure ? ['--add-scram', `${mechanism}=[name=${secure.username},password=${secure.password}]`] : [],
  )
  try {
    const env = { ...inheritedEnv(), ...UTF8 }
    await run('java', [...java, 'kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', properties, ...users], {
      cwd: dir,
      env,
    })
  } catch (cause) {
    const { stderr, stdout, message } = cause as { stderr?: string; stdout?: string; message: string }
    throw new StackError(`Kafka could not prepare ${data}: ${stderr?.trim() || stdout?.trim() || message}`, { cause })
  }
}

async function answersAs({ id, roles, ports }: NodePlan, clusterId: string): Promise<boolean> {
  // A controller alone answers no client; its brokers are its proof.
  if (roles === 'controller') return true
  const facts = await askCluster(ports.internal)
  if (!facts) return false
  if (facts.clusterId === clusterId) return facts.brokerIds.includes(id)
  throw new StackError(
    `Another Kafka, cluster ${facts.clusterId}, answers at 127.0.0.1:${ports.internal}. Nothing was done to it.`,
  )
}
