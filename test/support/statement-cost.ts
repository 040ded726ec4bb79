/** What a statement costs Postgres: the plan that was carried out, and the pages that it looked at. */
import type { Knex } from 'knex'
import { connectionOf } from '../../src/messaging/transaction/connection.ts'

/** A statement as knex tells of it. */
export interface Statement {
  readonly sql: string
  readonly bindings: readonly unknown[]
}

export interface PlanNode {
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Index Name'?: string
  readonly 'Shared Hit Blocks': number
  readonly 'Shared Read Blocks': number
  readonly Plans?: readonly PlanNode[]
}

export interface Cost {
  /** Pages that were looked at, in memory or not; one that is looked at twice counts twice. */
  readonly pages: number
  /** The nodes of the plan, each before those below it. */
  readonly nodes: readonly PlanNode[]
}

/** Runs the statement in `trx`, and throws its rows away. */
export async function costOf(trx: Knex.Transaction, { sql, bindings }: Statement): Promise<Cost> {
  const connection = await connectionOf(trx)
  const { rows } = await connection.query(`explain (analyze, buffers, format json) ${sql}`, bindings)
  const [{ Plan: root }] = (rows[0] as { 'QUERY PLAN': [{ Plan: PlanNode }] })['QUERY PLAN']
  return { pages: root['Shared Hit Blocks'] + root['Shared Read Blocks'], nodes: [root, ...below(root)] }
}

function below({ Plans = [] }: PlanNode): readonly PlanNode[] {
  return Plans.flatMap((plan) => [plan, ...below(plan)])
}
