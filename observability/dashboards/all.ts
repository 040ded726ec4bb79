/** Every dashboard, by the file that Grafana reads. */
import { type Board, buildBoard } from './board.ts'
import { consumers } from './consumers.ts'
import { overview } from './overview.ts'
import { relay } from './relay.ts'
import { runtime } from './runtime.ts'

export const boards: readonly Board[] = [overview, relay, consumers, runtime]

/** The JSON of each board, by file name. */
export function dashboardFiles(): Map<string, string> {
  return new Map(boards.map((board) => [`${board.uid}.json`, `${JSON.stringify(buildBoard(board), null, 2)}\n`]))
}
