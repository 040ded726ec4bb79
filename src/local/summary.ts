/** What `npm start` says once everything is ready: what is where, and what to do next. */
import { join } from 'node:path'
import { type LocalConfig, ownsServers, usualPorts } from './config.ts'
import type { Tracing } from './tracing.ts'

/** Several lines, with the roles that run here and no others. */
export function summary(config: LocalConfig, tracing: Tracing): string {
  const { port, adminPort, dataDir, roles } = config
  const api = roles.includes('api')
  const lines = [
    ...(api ? [['GraphQL', `http://127.0.0.1:${port}/graphql; http://127.0.0.1:${port} in a browser`]] : []),
    ...(api && roles.length >= ALL ? [] : [['Roles', roles.join(', ')]]),
    ['Admin', `http://127.0.0.1:${adminPort}/readyz and /metrics`],
    ['Jaeger', tracing.state()],
    ...(ownsServers(config) ? dataLines(dataDir) : []),
  ]
  const table = lines.map(([name = '', text]) => `  ${name.padEnd(10)}${text}`)
  const next = api ? [`  Try it: ${demoCommand(config, tracing)}`] : []
  return ['', ...table, '', ...next, '  Ctrl-C stops everything.', ''].join('\n')
}

const ALL = 3

function dataLines(dataDir: string): readonly string[][] {
  return [
    ['Data', `${dataDir}, kept between starts`],
    ['', `${join(dataDir, 'env')} says how to connect; the servers' ports change at every start`],
  ]
}

/** With the options that it needs to find this start, and no others. */
function demoCommand({ port }: LocalConfig, { queryUrl }: Tracing): string {
  const options = [
    ...(port === usualPorts.graphql ? [] : [`--url http://127.0.0.1:${port}`]),
    ...(queryUrl === null || queryUrl === `http://127.0.0.1:${usualPorts.jaeger}` ? [] : [`--jaeger ${queryUrl}`]),
  ]
  return ['npm run demo', ...(options.length > 0 ? ['--', ...options] : [])].join(' ')
}
