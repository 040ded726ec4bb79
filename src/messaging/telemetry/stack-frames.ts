/**
 * The frames of an error's stack, without the message that begins it.
 *
 * A message may have lines that look like frames: Postgres quotes the value
 * that it refuses, with its line breaks. So the message is cut off first, and
 * of a stack in which it is not found nothing is taken at all.
 *
 * Imports nothing, so that it can be loaded before telemetry has begun.
 */

/**
 * The lines of an error's stack that say where it was thrown, innermost first,
 * each with a file and a line in it; none where a line of the message could be
 * among them. Never throws, whatever the error is.
 */
export function stackFrames(error: { readonly message?: unknown; readonly stack?: unknown }): readonly string[] {
  try {
    const { message = '', stack } = error
    if (typeof message !== 'string' || typeof stack !== 'string') return []
    const lines = behindMessage(message, stack)?.trimEnd().split('\n').slice(1) ?? []
    // Anything else is of a message that was shortened since, and what comes before it may be too.
    return lines.every((line) => line.startsWith('    at ')) ? lines.filter((line) => FRAME.test(line)) : []
  } catch {
    // A getter that throws.
    return []
  }
}

/** V8's: a function, and the file with line and column. What is no absolute path is of no file, but may be of a message. */
const FRAME =
  /^(?=\P{Cc}{1,1000}$) {4}at (?:.* \(|async )?(?:file:\/\/\/|node:|\/|[A-Za-z]:[\\/]).*:\d{1,7}(?::\d{1,7})?\)?$/u

/** What begins a stack: `TypeError: `, `AggregateError [ECONNREFUSED]: `, the name alone where there is no message. */
const HEAD = /^[\w.$]+(?: \[\w+\])?(?:: )?/

/** The stack from the end of its message on; `null` where that is not found. */
function behindMessage(message: string, stack: string): string | null {
  const [head = ''] = HEAD.exec(stack) ?? []
  for (const said of messagesIn(message)) {
    // An error without a name has a stack that begins with its message.
    for (const rest of [stack.slice(head.length), stack]) {
      const behind = rest.startsWith(said) ? rest.slice(said.length) : null
      if (behind?.startsWith('\n')) return behind
    }
  }
  return null
}

/**
 * The messages that an error may have had when its stack was made, longest
 * first: what begins as a frame in the message itself is then cut off with it.
 * Knex puts the statement before the message afterwards.
 */
function* messagesIn(message: string): Iterable<string> {
  yield message
  for (let at = message.indexOf(KNEX); at >= 0; at = message.indexOf(KNEX, at + 1))
    yield message.slice(at + KNEX.length)
}

const KNEX = ' - '
