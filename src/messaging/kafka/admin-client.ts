/** A kafkajs admin client of ours: mended, and with an end to it that cannot hang. */
import type { Admin } from 'kafkajs'
import { createClient } from './client.ts'
import { type ClusterInside, withCluster } from './inside.ts'
import { mend } from './mend.ts'
import type { ResolvedKafkaOptions } from './options.ts'
import type { Sockets } from './sockets.ts'

/** Milliseconds for a client to close in good order before its sockets are cut off. */
const CLOSE_MS = 4_000

/** kafkajs's number for topics as a kind of thing that has a configuration. */
const TOPIC_RESOURCE = 2

/** A client on its way to a connection, or connected. */
export interface OpenAdmin {
  readonly admin: Admin
  readonly cluster: ClusterInside
  readonly sockets: Sockets
  readonly connected: Promise<void>
}

/** Makes a client and begins to connect it. */
export function openAdmin(options: ResolvedKafkaOptions): OpenAdmin {
  const { kafka, sockets } = createClient(options)
  const { client, cluster } = withCluster(kafka, () => kafka.admin())
  mend(cluster)
  const connected = client.connect()
  connected.catch(() => {})
  return { admin: client, cluster, sockets, connected }
}

/** Closes a client, by force if it does not close in time. Never rejects. */
export async function closeAdmin({ admin, sockets, connected }: OpenAdmin): Promise<void> {
  const timer = setTimeout(() => sockets.cutOff(), CLOSE_MS)
  await connected.catch(() => {})
  await admin.disconnect().catch(() => {})
  clearTimeout(timer)
  sockets.cutOff()
}

/** `null` where the broker does not let us see it; whoever may write to a topic may not always read its settings. */
export async function minInsyncReplicas(admin: Admin, topic: string): Promise<number | null> {
  const name = 'min.insync.replicas'
  try {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: TOPIC_RESOURCE, name: topic, configNames: [name] }],
    })
    const value = resources[0]?.configEntries.find(({ configName }) => configName === name)?.configValue
    return value === undefined ? null : Number(value)
  } catch {
    return null
  }
}
