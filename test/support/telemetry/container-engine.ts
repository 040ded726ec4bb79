/**
 * A container engine that has no images: it notes what it is asked for, and runs
 * in each one's place a small server, healthy at once, on the port that the
 * program in the image would be told of.
 */
import { appendFileSync } from 'node:fs'
import { createServer } from 'node:http'

const args = process.argv.slice(2)
appendFileSync(process.env.TEST_ENGINE_LOG ?? '', `${args.join(' ')}\n`)
// Nothing is there before it is fetched.
if (args[0] === 'image') process.exitCode = 1
if (args[0] === 'run') {
  const told = /(?:JAEGER_HEALTH_PORT=|GF_SERVER_HTTP_PORT=|--web\.listen-address=127\.0\.0\.1:)(\d+)/.exec(
    args.join(' '),
  )
  createServer((_, response) => response.end('{"healthy":true}')).listen(Number(told?.[1]), '127.0.0.1')
}
