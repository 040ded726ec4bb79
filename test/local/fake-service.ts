/** Stands in for the service under `npm start`: says what it was given, is ready at once, and says when it drains. With `stubborn`, it never does. */
import { createServer } from 'node:http'

const { DATABASE_URL, KAFKA_BROKERS, ADMIN_PORT } = process.env
const server = createServer((_, response) => response.end('{}')).listen(Number(ADMIN_PORT), '127.0.0.1')
console.log(JSON.stringify({ pid: process.pid, DATABASE_URL, KAFKA_BROKERS }))
for (const [name, value] of Object.entries(process.env).sort()) {
  if (/^(OTEL|OUTBOX|LOG|JAEGER)_/.test(name)) console.log(`${name}=${value}`)
}
process.on('SIGTERM', () => {
  if (process.argv[2] === 'stubborn') return console.log('service goes on')
  console.log('service drained')
  server.close()
  server.closeAllConnections()
})
