/** How the domain says no. Nothing was changed when it does. */

/** What is wrong with one field of a command, in words for the person who fills it in. */
export interface Problem {
  /** Where, within the command: `['items', 2, 'quantity']`. */
  readonly path: readonly (string | number)[]
  readonly message: string
}

export type RefusalCode = 'BAD_INPUT' | 'NOT_FOUND' | 'ILLEGAL_TRANSITION'

/** A command was refused. The message is a sentence fit for whoever sent it. */
export class OrderRefusal extends Error {
  override readonly name = 'OrderRefusal'
  readonly code: RefusalCode
  /** What is wrong with the input; empty for the other codes. */
  readonly problems: readonly Problem[]

  constructor(code: RefusalCode, message: string, problems: readonly Problem[] = []) {
    super(message)
    this.code = code
    this.problems = problems
  }
}

/** Throws one refusal that names all of `problems`; does nothing when there are none. */
export function refuseIfAny(problems: readonly Problem[]): void {
  if (problems.length > 0)
    throw new OrderRefusal('BAD_INPUT', problems.map(({ message }) => message).join('; '), problems)
}
