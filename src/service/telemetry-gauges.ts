/** Gauges of what this process holds: its pools of connections, its memory and processor time. */

import { memoryUsage } from 'node:process'
import { metrics } from '@opentelemetry/api'
import type { Knex } from 'knex'

const POOL = 'db.client.connection.pool.name'
const STATE = 'db.client.connection.state'
const CPU_MODE = 'cpu.mode'

/** The service's own metrics, beside the library's. */
export const serviceCatalogue = {
  connectionCount: {
    name: 'db.client.connection.count',
    kind: 'observableGauge',
    unit: '{connection}',
    description: 'Connections of a pool that are in use or idle',
    attributes: [POOL, STATE],
  },
  connectionMax: {
    name: 'db.client.connection.max',
    kind: 'observableGauge',
    unit: '{connection}',
    description: 'Connections that a pool may have',
    attributes: [POOL],
  },
  connectionPending: {
    name: 'db.client.connection.pending_requests',
    kind: 'observableGauge',
    unit: '{request}',
    description: 'Callers that wait for a connection',
    attributes: [POOL],
  },
  memoryUsage: {
    name: 'process.memory.usage',
    kind: 'observableGauge',
    unit: 'By',
    description: 'Resident memory of the process, all threads together',
    attributes: [],
  },
  cpuTime: {
    name: 'process.cpu.time',
    kind: 'observableCounter',
    unit: 's',
    description: 'Processor time of the process, all threads together',
    attributes: [CPU_MODE],
  },
  uptime: {
    name: 'process.uptime',
    kind: 'observableGauge',
    unit: 's',
    description: 'How long the process has run',
    attributes: [],
  },
} as const

/** What knex does not type: the pool behind a client. */
interface Pool {
  readonly max: number
  numUsed(): number
  numFree(): number
  numPendingAcquires(): number
}

/** Shows the pool of `db` as `name`, until the thread ends. Once a pool. */
export function observePool(name: string, db: Knex): void {
  const pool = (db.client as { pool?: Pool }).pool
  if (!pool) return
  const meter = metrics.getMeter('orders-service')
  const count = gauge(serviceCatalogue.connectionCount)
  const max = gauge(serviceCatalogue.connectionMax)
  const pending = gauge(serviceCatalogue.connectionPending)
  meter.addBatchObservableCallback(
    (result) => {
      result.observe(count, pool.numUsed(), { [POOL]: name, [STATE]: 'used' })
      result.observe(count, pool.numFree(), { [POOL]: name, [STATE]: 'idle' })
      result.observe(max, pool.max, { [POOL]: name })
      result.observe(pending, pool.numPendingAcquires(), { [POOL]: name })
    },
    [count, max, pending],
  )
}

/** Shows the process as a whole. Once, in the main thread. */
export function observeProcess(): void {
  gauge(serviceCatalogue.memoryUsage).addCallback((result) => result.observe(memoryUsage.rss()))
  gauge(serviceCatalogue.uptime).addCallback((result) => result.observe(process.uptime()))
  const { name, unit, description } = serviceCatalogue.cpuTime
  metrics
    .getMeter('orders-service')
    .createObservableCounter(name, { unit, description })
    .addCallback((result) => {
      const { user, system } = process.cpuUsage()
      result.observe(user / 1e6, { [CPU_MODE]: 'user' })
      result.observe(system / 1e6, { [CPU_MODE]: 'system' })
    })
}

function gauge({ name, unit, description }: { name: string; unit: string; description: string }) {
  return metrics.getMeter('orders-service').createObservableGauge(name, { unit, description })
}
