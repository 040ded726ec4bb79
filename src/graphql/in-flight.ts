/** Knows which operations are being executed, also those whose client has gone: their transactions still run. */
import type { ApolloServerPlugin } from '@apollo/server'
import type { RequestContext } from './context.ts'

export interface InFlight {
  readonly plugin: ApolloServerPlugin<RequestContext>
  /** Resolves once nothing is being executed. */
  idle(): Promise<void>
}

/** A counter of operations in execution, kept by an Apollo plugin. */
export function trackInFlight(): InFlight {
  let count = 0
  let waiting: (() => void)[] = []

  const ended = () => {
    count -= 1
    if (count > 0) return
    for (const resolve of waiting) resolve()
    waiting = []
  }

  return {
    plugin: {
      async requestDidStart() {
        count += 1
        return { willSendResponse: async () => ended() }
      },
    },
    async idle() {
      if (count > 0) await new Promise<void>((resolve) => waiting.push(resolve))
    },
  }
}
