/** The settings of a local Kafka node, as the lines of its server.properties. */

export interface NodePlan {
  readonly id: number
  readonly roles: 'broker,controller' | 'broker' | 'controller'
  /** Ports of 127.0.0.1. `client` is for applications, `internal` for brokers among themselves and this stack's questions. */
  readonly ports: {
    readonly client: number
    readonly internal: number
    readonly controller: number
    readonly secure: number
  }
  /** The port that clients are told in place of `ports.client`: of a proxy in front of it. */
  readonly advertisedPort: number
  /** The same for `ports.secure`. */
  readonly advertisedSecurePort: number
}

/**
 * In the node's folder, in which it runs. Names and no paths, since Kafka takes a
 * comma in a path for two of them, and Java reads this file in Latin-1.
 */
export const DATA_FOLDER = 'data'
export const KEY_STORE_FILE = 'key.pem'

/** A listener with TLS and SCRAM, for one user. */
export interface SecureListener {
  /** PEM of the key and of the certificates. */
  readonly keyStore: string
  readonly username: string
  readonly password: string
}

export interface ClusterPlan {
  /** `id@host:port` of the controller. */
  readonly voter: string
  readonly brokerCount: number
  readonly secure: SecureListener | null
  /** Over all others. */
  readonly settings: Readonly<Record<string, string | number | boolean>>
}

/** The text of one node's server.properties. */
export function serverProperties(node: NodePlan, cluster: ClusterPlan): string {
  const all = {
    'process.roles': node.roles,
    'node.id': node.id,
    // Named and not bootstrapped, so that the cluster comes back with its data on other ports.
    'controller.quorum.voters': cluster.voter,
    'controller.listener.names': 'CONTROLLER',
    ...listeners(node, cluster),
    'log.dirs': DATA_FOLDER,
    ...replication(cluster.brokerCount),
    ...small,
    ...(cluster.secure ? security() : {}),
    ...cluster.settings,
  }
  return Object.entries(all)
    .map(([name, value]) => `${name}=${value}\n`)
    .join('')
}

function listeners(node: NodePlan, { secure }: ClusterPlan): Record<string, string> {
  const { roles, ports, advertisedPort, advertisedSecurePort } = node
  const at = (name: string, port: number) => `${name}://127.0.0.1:${port}`
  const controller = roles === 'broker' ? [] : [at('CONTROLLER', ports.controller)]
  const internal = at('INTERNAL', ports.internal)
  const secured = (port: number) => (secure ? [at('SECURE', port)] : [])
  const protocols = 'CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL'
  if (roles === 'controller') return { listeners: controller.join(), 'listener.security.protocol.map': protocols }
  return {
    listeners: [at('CLIENT', ports.client), internal, ...secured(ports.secure), ...controller].join(),
    'advertised.listeners': [at('CLIENT', advertisedPort), internal, ...secured(advertisedSecurePort)].join(),
    'listener.security.protocol.map': protocols,
    'inter.broker.listener.name': 'INTERNAL',
  }
}

function security(): Record<string, string> {
  return {
    'sasl.enabled.mechanisms': 'SCRAM-SHA-256,SCRAM-SHA-512',
    'listener.name.secure.ssl.keystore.type': 'PEM',
    'listener.name.secure.ssl.keystore.location': KEY_STORE_FILE,
    ...Object.fromEntries(
      ['scram-sha-256', 'scram-sha-512'].map((mechanism) => [
        `listener.name.secure.${mechanism}.sasl.jaas.config`,
        'org.apache.kafka.common.security.scram.ScramLoginModule required;',
      ]),
    ),
  }
}

function replication(brokerCount: number): Record<string, number> {
  const factor = Math.min(3, brokerCount)
  const minInSync = Math.max(1, factor - 1)
  return {
    'default.replication.factor': factor,
    'min.insync.replicas': minInSync,
    'offsets.topic.replication.factor': factor,
    'transaction.state.log.replication.factor': factor,
    'transaction.state.log.min.isr': minInSync,
    'share.coordinator.state.topic.replication.factor': factor,
    'share.coordinator.state.topic.min.isr': minInSync,
  }
}

/** What fits a laptop: few partitions of the internal topics, small buffers, no wait before a group forms. */
const small = {
  'auto.create.topics.enable': false,
  'num.partitions': 8,
  'group.initial.rebalance.delay.ms': 0,
  'offsets.topic.num.partitions': 4,
  'transaction.state.log.num.partitions': 4,
  'share.coordinator.state.topic.num.partitions': 1,
  'num.network.threads': 2,
  'num.io.threads': 4,
  'background.threads': 2,
  'log.cleaner.dedupe.buffer.size': 8_388_608,
  'log.segment.bytes': 134_217_728,
  'log.retention.hours': 168,
  'controlled.shutdown.enable': true,
}
