/**
 * An embedded Apache Kafka in KRaft mode: real, on 127.0.0.1, one node or three
 * brokers with a controller of their own.
 *
 * It is used only once each broker that answers has named the cluster id that
 * this folder was given, so a foreign cluster on the same port is never touched.
 */
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { mkdir, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { freePorts } from './free-ports.ts'
import { kafkaJars, requireJava } from './kafka-jars.ts'
import { askCluster } from './kafka-metadata.ts'
import { type ClusterPlan, type NodePlan, serverProperties } from './kafka-settings.ts'
import { endLeftover } from './leftover.ts'
import { OwnedServer } from './owned-server.ts'
import { StackError } from './stack-error.ts'

const run = promisify(execFile)
const logging = fileURLToPath(new URL('../../stack/kafka/log4j2.properties', import.meta.url))

export interface KafkaOptions {
  /** Folder of everything this cluster writes. Created when missing; the data in it is kept. */
  readonly dir: string
  /**
   * One node that is broker and controller, or three brokers and a controller
   * process beside them: then any broker, or all, may fail and the controller sees it.
   * @defaultValue 1
   */
  readonly nodes?: 1 | 3
  /**
   * Ports that clients are told in place of the brokers' own, by broker id from
   * 1: of proxies that stand before them.
   * @defaultValue none
   */
  readonly advertised?: Readonly<Record<number, number>>
  /** Ports of the client listeners, by broker id from 1. @defaultValue free ones */
  readonly ports?: Readonly<Record<number, number>>
  /** MiB of Java heap of each broker. @defaultValue 512 */
  readonly heapMb?: number
  /** More arguments for Java. @defaultValue none */
  readonly jvm?: readonly string[]
  /** Settings of server.properties, over ours. */
  readonly settings?: Readonly<Record<string, string | number | boolean>>
  /** Called before the jars are fetched, which happens once. */
  readonly onFetch?: () => void
}

export interface KafkaNode {
  /** From 1. */
  readonly id: number
  /** The broker's own client port, whatever it advertises. */
  readonly port: number
  readonly logFile: string
  /** Null while it does not run. */
  readonly pid: number | null
  /** Signals it; after one that ends it, resolves when it has ended. */
  kill(signal: NodeJS.Signals): Promise<void>
  /** Controlled shutdown. The data stays. */
  stop(): Promise<void>
  /** Starts it on its data and ports; resolves once it is back in its cluster. */
  start(): Promise<void>
  restart(): Promise<void>
}

export interface Kafka extends AsyncDisposable {
  /** `host:port` as clients are told: the proxies' where there are some. */
  readonly brokers: readonly string[]
  readonly clusterId: string
  readonly nodes: readonly KafkaNode[]
  /** The three brokers' controller; with one node, that node. */
  readonly controller: KafkaNode
  /** Rejects when a process of the cluster ends and nobody asked it to; never resolves. */
  readonly failed: Promise<never>
  /** Stops brokers, then the controller. The data stays. */
  stop(): Promise<void>
  /** Ends all at once, for data that nobody needs again. */
  kill(): Promise<void>
}

/** Starts a cluster on `dir`, creating its data the first time. Throws {@link StackError} saying what to do. */
export async function startKafka(options: KafkaOptions): Promise<Kafka> {
  await requireJava()
  const jars = await kafkaJars(options.onFetch ? { onFetch: options.onFetch } : {})
  await mkdir(options.dir, { recursive: true })
  const clusterId = await keptClusterId(options.dir, options.nodes ?? 1)
  const plans = await planNodes(options)
  const voter = plans.at(-1)
  if (!voter) throw new Error('A cluster has nodes')

  const servers = await Promise.all(plans.map((plan) => createNode(plan, { options, jars, clusterId, voter })))
  const brokers = servers.filter(({ plan }) => plan.roles !== 'controller').map(({ node }) => node)
  for (const { server } of servers) server.launch()
  const all = servers.map(({ server }) => server)
  const end = async (how: 'stop' | 'kill') => {
    await Promise.all(
      all.slice(0, brokers.length).map((server) => (how === 'stop' ? server.stop() : server.kill('SIGKILL'))),
    )
    await Promise.all(
      all.slice(brokers.length).map((server) => (how === 'stop' ? server.stop() : server.kill('SIGKILL'))),
    )
  }
  try {
    await Promise.all(all.map((server) => server.ready()))
  } catch (error) {
    await end('kill')
    throw error
  }
  const controller = servers.at(-1)?.node
  if (!controller) throw new Error('A cluster has nodes')
  return {
    brokers: plans
      .filter(({ roles }) => roles !== 'controller')
      .map(({ advertisedPort }) => `127.0.0.1:${advertisedPort}`),
    clusterId,
    nodes: brokers,
    controller,
    failed: Promise.race(all.map(({ failed }) => failed)),
    stop: () => end('stop'),
    kill: () => end('kill'),
    [Symbol.asyncDispose]: () => end('stop'),
  }
}

/** The cluster's id, made once; a folder keeps the number of nodes it was made for. */
async function keptClusterId(dir: string, nodes: 1 | 3): Promise<string> {
  const file = join(dir, 'cluster.json')
  const kept = await readFile(file, 'utf8').catch(() => null)
  if (kept !== null) {
    const cluster = JSON.parse(kept) as { clusterId: string; nodes: number }
    if (cluster.nodes === nodes) return cluster.clusterId
    throw new StackError(
      `${dir} holds a Kafka of ${cluster.nodes} nodes, not ${nodes}. Use another folder, or remove this one and lose its topics.`,
    )
  }
  // An id that begins with a dash would be an option to the tools.
  const clusterId = `K${randomBytes(16).toString('base64url').slice(1)}`
  await writeFile(file, `${JSON.stringify({ clusterId, nodes })}\n`)
  return clusterId
}

/** Brokers first, the voter last. */
async function planNodes({ nodes = 1, ports = {}, advertised = {} }: KafkaOptions): Promise<NodePlan[]> {
  const roles = nodes === 1 ? (['broker,controller'] as const) : (['broker', 'broker', 'broker', 'controller'] as const)
  const free = await freePorts(roles.length * 4)
  return roles.map((role, index) => {
    const id = index + 1
    const [a = 0, internal = 0, controller = 0, secure = 0] = free.slice(index * 4)
    const client = ports[id] ?? a
    return {
      id,
      roles: role,
      ports: { client, internal, controller, secure },
      advertisedPort: advertised[id] ?? client,
    }
  })
}

interface NodeContext {
  readonly options: KafkaOptions
  readonly jars: string
  readonly clusterId: string
  readonly voter: NodePlan
}

async function createNode(plan: NodePlan, { options, jars, clusterId, voter }: NodeContext) {
  const dir = join(options.dir, `node-${plan.id}`)
  await mkdir(dir, { recursive: true })
  const properties = join(dir, 'server.properties')
  const pidFile = join(dir, 'kafka.pid')
  const name = plan.roles === 'controller' ? 'Kafka controller' : `Kafka node ${plan.id}`
  await endLeftover({ name, pidFile, commandHolds: `kafka.Kafka ${properties}`, stopSignal: 'SIGTERM' })

  const cluster: ClusterPlan = {
    voter: `${voter.id}@127.0.0.1:${voter.ports.controller}`,
    brokerCount: options.nodes ?? 1,
    logDir: join(dir, 'data'),
    secure: null,
    settings: options.settings ?? {},
  }
  await writeFile(properties, serverProperties(plan, cluster))
  const logFile = join(dir, 'kafka.log')
  const java = [
    '-XX:+UseSerialGC',
    '-Djava.awt.headless=true',
    `-Dlog4j2.configurationFile=${logging}`,
    `-Dkafka.logFile=${logFile}`,
  ]
  const classPath = ['-cp', join(jars, '*')]
  await format({ cluster, clusterId, properties, java: [...java, '-XX:TieredStopAtLevel=1', ...classPath] })

  const heap = plan.roles === 'controller' ? 128 : (options.heapMb ?? 512)
  const server = new OwnedServer({
    name,
    command: ['java', `-Xmx${heap}m`, ...java, ...(options.jvm ?? []), ...classPath, 'kafka.Kafka', properties],
    logFile: join(dir, 'console.log'),
    errorLogFile: logFile,
    pidFile,
    stopSignal: 'SIGTERM',
    graceSeconds: 15,
    answers: () => answersAs(plan, clusterId),
    startTimeoutMs: 90_000,
  })
  return { plan, server, node: asNode(plan, server) }
}

function asNode(plan: NodePlan, server: OwnedServer): KafkaNode {
  return {
    id: plan.id,
    port: plan.ports.client,
    logFile: server.logFile,
    get pid() {
      return server.pid
    },
    kill: (signal) => server.kill(signal),
    stop: () => server.stop(),
    start: () => server.start(),
    restart: () => server.restart(),
  }
}

/** Prepares a node's folder the first time; one that was interrupted has no meta.properties and is made anew. */
async function format({
  cluster,
  clusterId,
  properties,
  java,
}: {
  cluster: ClusterPlan
  clusterId: string
  properties: string
  java: string[]
}): Promise<void> {
  if (await exists(join(cluster.logDir, 'meta.properties'))) return
  await rm(cluster.logDir, { recursive: true, force: true })
  try {
    await run('java', [...java, 'kafka.tools.StorageTool', 'format', '-t', clusterId, '-c', properties])
  } catch (cause) {
    const { stderr, message } = cause as { stderr?: string; message: string }
    throw new StackError(`Kafka could not prepare ${cluster.logDir}: ${stderr?.trim() || message}`, { cause })
  }
}

async function answersAs({ id, roles, ports }: NodePlan, clusterId: string): Promise<boolean> {
  // A controller alone answers no client; its brokers are its proof.
  if (roles === 'controller') return true
  const facts = await askCluster(ports.internal)
  if (!facts) return false
  if (facts.clusterId !== clusterId) {
    throw new StackError(
      `Another Kafka, cluster ${facts.clusterId}, answers at 127.0.0.1:${ports.internal}. Nothing was done to it.`,
    )
  }
  return facts.brokerIds.includes(id)
}

async function exists(path: string): Promise<boolean> {
  return await stat(path).then(
    () => true,
    () => false,
  )
}
