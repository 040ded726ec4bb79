/** Which nodes a local cluster has, and on which ports. */
import { freePorts } from './free-ports.ts'
import type { NodePlan } from './kafka-settings.ts'

export interface PlanOptions {
  readonly nodes?: 1 | 3
  /** Ports of the client listeners, by broker id from 1. */
  readonly ports?: Readonly<Record<number, number>>
  /** Ports that clients are told in their place. */
  readonly advertised?: Readonly<Record<number, number>>
  /** The same of the listeners with TLS and SCRAM. */
  readonly advertisedSecure?: Readonly<Record<number, number>> | undefined
}

/** Brokers first, the voter last. */
export async function planNodes(options: PlanOptions): Promise<NodePlan[]> {
  const { nodes = 1, ports = {}, advertised = {}, advertisedSecure = {} } = options
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
      advertisedSecurePort: advertisedSecure[id] ?? secure,
    }
  })
}
