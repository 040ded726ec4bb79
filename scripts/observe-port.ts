/** The ports at which `npm run observe` shows things. */
import { portIsFree, usualPort } from '../src/local/free-ports.ts'
import { StackError } from '../src/local/stack-error.ts'

export interface PortWanted {
  /** The option that gives it. */
  readonly option: string
  /** What somebody has said. */
  readonly given: number | null
  /** What people know. */
  readonly usual: number
}

/** The given one, or else the usual one where it is free. Throws {@link StackError} where the given one is taken: whoever has it would be shown for ours. */
export async function portFor({ option, given, usual }: PortWanted): Promise<number> {
  if (given === null) return await usualPort(usual)
  if (await portIsFree(given)) return given
  throw new StackError(`Port ${given} is taken. Give another with ${option}, or none: a free one is found.`)
}
