/** The process cannot start for a reason that its operator can remove. The message says which, in one sentence. */
export class StartError extends Error {
  override readonly name = 'StartError'
}
