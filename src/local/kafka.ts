/**
 * An embedded Apache Kafka in KRaft mode: real, on 127.0.0.1, one node or three
 * brokers with a controller of their own.
 *
 * It is used only once each broker that answers has named the cluster id that
 * this folder was given, so a foreign cluster on the same port is never touched.
 */
import { randomBytes } from 'node:crypto'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { ServerCertificate } from './certificates.ts'
import { archiveClasses, classArchiveArguments } from './kafka-class-archive.ts'
import { kafkaJars, kafkaProblems } from './kafka-jars.ts'
import { createNode, nodeFolder } from './kafka-node.ts'
import { planNodes } from './kafka-plan.ts'
import { DATA_FOLDER, type NodePlan, type SecureListener } from './kafka-settings.ts'
import type { OwnedServer } from './owned-server.ts'
import { StackError } from './stack-error.ts'

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
  /** A second listener on each broker, with TLS and SCRAM for one user. @defaultValue none */
  readonly secure?: SecureOptions
  /** Called before the jars are fetched, which happens once. */
  readonly onFetch?: () => void
}

/** The listener with TLS and SCRAM. */
export interface SecureOptions {
  readonly certificate: ServerCertificate
  readonly username: string
  readonly password: string
  /** Ports that clients are told in place of this listener's own, by broker id from 1. @defaultValue none */
  readonly advertised?: Readonly<Record<number, number>>
}

export interface KafkaNode {
  /** From 1. */
  readonly id: number
  /** The broker's own client port, whatever it advertises. */
  readonly port: number
  /** Its own port with TLS and SCRAM, whatever it advertises; nobody listens there without `secure`. */
  readonly securePort: number
  /** The folder of its topics. A test may take it away; the node's next start makes an empty one. */
  readonly dataDir: string
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
  /** The same of the listeners with TLS and SCRAM, their proxies' where there are some; empty without `secure`. */
  readonly secureBrokers: readonly string[]
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
  const problems = await kafkaProblems()
  if (problems.length > 0) throw new StackError(problems.join('\n'))
  const jars = await kafkaJars({ onFetch: options.onFetch ?? (() => {}), onFetched: archiveClasses })
  await mkdir(options.dir, { recursive: true })
  const clusterId = await keptClusterId(options.dir, options.nodes ?? 1)
  const plans = await planNodes({ ...options, advertisedSecure: options.secure?.advertised })
  const voter = plans.at(-1)
  if (!voter) throw new Error('A cluster has nodes')

  const context = {
    dir: options.dir,
    jars,
    clusterId,
    voter,
    brokerCount: options.nodes ?? 1,
    heapMb: options.heapMb ?? 512,
    jvm: [...(await classArchiveArguments(jars)), ...(options.jvm ?? [])],
    secure: secureListener(options.secure),
    settings: options.settings ?? {},
  }
  const servers = await Promise.all(plans.map((plan) => createNode(plan, context)))
  // All at once: none is ready before the others let it be.
  for (const server of servers) server.launch()
  try {
    await Promise.all(servers.map((server) => server.ready()))
  } catch (error) {
    await Promise.all(servers.map((server) => server.kill('SIGKILL')))
    throw error
  }
  return asCluster({ dir: options.dir, clusterId, plans, servers, secured: options.secure !== undefined })
}

function secureListener(secure: KafkaOptions['secure']): SecureListener | null {
  if (!secure) return null
  const { certificate, username, password } = secure
  return { keyStore: `${certificate.key}${certificate.certificate}${certificate.ca}`, username, password }
}

interface ClusterParts {
  readonly dir: string
  readonly clusterId: string
  readonly plans: readonly NodePlan[]
  readonly servers: readonly OwnedServer[]
  readonly secured: boolean
}

function asCluster({ dir, clusterId, plans, servers, secured }: ClusterParts): Kafka {
  const brokerPlans = plans.filter(({ roles }) => roles !== 'controller')
  const nodes = plans.flatMap((plan, index) => (servers[index] ? [asNode(plan, servers[index], dir)] : []))
  const controller = nodes.at(-1)
  if (!controller) throw new Error('A cluster has nodes')
  const stop = async () => {
    // A broker's controlled shutdown needs its controller.
    await Promise.all(servers.slice(0, brokerPlans.length).map((server) => server.stop()))
    await Promise.all(servers.map((server) => server.stop()))
  }
  const failed = Promise.race(servers.map((server) => server.failed))
  // Whoever breaks brokers on purpose does not listen.
  failed.catch(() => {})
  return {
    brokers: brokerPlans.map(({ advertisedPort }) => `127.0.0.1:${advertisedPort}`),
    secureBrokers: secured ? brokerPlans.map(({ advertisedSecurePort }) => `127.0.0.1:${advertisedSecurePort}`) : [],
    clusterId,
    nodes: nodes.slice(0, brokerPlans.length),
    controller,
    failed,
    stop,
    kill: async () => {
      await Promise.all(servers.map((server) => server.kill('SIGKILL')))
    },
    [Symbol.asyncDispose]: stop,
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

function asNode(plan: NodePlan, server: OwnedServer, clusterFolder: string): KafkaNode {
  return {
    id: plan.id,
    port: plan.ports.client,
    securePort: plan.ports.secure,
    dataDir: join(nodeFolder(clusterFolder, plan.id), DATA_FOLDER),
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
