/** What the local stack cannot do, said once, for a person, with the way out in the sentence. */
export class StackError extends Error {
  override readonly name = 'StackError'
}
