import { readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import { consumerDefaults } from '../../src/messaging/consumer/options.ts'
import { kafkaDefaults } from '../../src/messaging/kafka/options.ts'
import { publisherDefaults } from '../../src/messaging/kafka/publisher-options.ts'
import { subscriberDefaults } from '../../src/messaging/kafka/subscriber-options.ts'
import { appendDefaults } from '../../src/messaging/outbox/append.ts'
import { relayDefaults } from '../../src/messaging/relay/options.ts'

const read = async (path: string) => await readFile(new URL(`../../${path}`, import.meta.url), 'utf8')

/** The options of an interface that state a plain default, by name. */
function documentedDefaults(source: string): Record<string, string> {
  const found = [...source.matchAll(/@defaultValue (\S+)\s*(?:\n\s*)?\*\/\s+(?:readonly )?(\w+)\?:/g)]
  return Object.fromEntries(found.map(([, value = '', name = '']) => [name, value]))
}

function plain(value: unknown): string {
  return typeof value === 'number' ? value.toLocaleString('en').replaceAll(',', '_') : String(value)
}

test.each([
  ['relay', 'src/messaging/relay/options.ts', relayDefaults],
  ['consumer', 'src/messaging/consumer/options.ts', consumerDefaults],
  ['append', 'src/messaging/outbox/append.ts', appendDefaults],
])('each %s option documents its real default', async (_, path, defaults) => {
  const documented = documentedDefaults(await read(path))
  const simple = Object.entries(defaults).filter(([, value]) => typeof value !== 'function')
  expect(simple.length).toBeGreaterThan(0)
  for (const [name, value] of simple) expect([name, documented[name]]).toEqual([name, plain(value)])
})

test.each([
  ['Relay', relayDefaults],
  ['Consumer', consumerDefaults],
  ['Writing', { locked: appendDefaults.locked, maxEventBytes: appendDefaults.maxEventBytes }],
  ['Kafka', { ...kafkaDefaults, ...publisherDefaults, ...subscriberDefaults }],
])('docs/options.md lists each option below %s with its default', async (heading, defaults) => {
  const [, section = ''] = (await read('docs/options.md')).split(new RegExp(`^## ${heading} `, 'm'))
  const [table = ''] = section.split('\n## ')
  for (const [name, value] of Object.entries(defaults)) {
    expect(table).toMatch(new RegExp(`\\| \`${name}\` \\| [^|]*${plain(value).replaceAll('_', ',')}[^|]*\\|`))
  }
})

test('docs/options.md lists each environment variable that the service reads, and no other', async () => {
  const schema = await read('src/service/config.ts')
  const telemetry = await read('src/service/telemetry-config.ts')
  const local = await read('src/local/config.ts')
  const known = new Set(
    `${schema}${telemetry}${local}`.match(/\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b|\b(?:PORT|HOST|ROLES)\b/g),
  )
  const documented = [...(await read('docs/options.md')).matchAll(/^\| `([A-Z][A-Z0-9_]+)`/gm)].map(([, name]) => name)

  expect(documented.length).toBeGreaterThan(20)
  expect(documented.filter((name) => name !== undefined && !known.has(name) && !name.startsWith('OTEL_'))).toEqual([])
  const variables = [...schema.matchAll(/^ {2}([A-Z][A-Z0-9_]+): /gm)].map(([, name]) => name)
  expect(variables.filter((name) => !documented.includes(name))).toEqual([])
})

test('docs/errors.md lists each error code, and no other', async () => {
  const codes = [...(await read('src/messaging/errors.ts')).matchAll(/^ {2}\| '(MESSAGING_\w+)'/gm)].map(
    ([, code]) => code,
  )
  const documented = [...(await read('docs/errors.md')).matchAll(/^\| `(MESSAGING_\w+)`/gm)].map(([, code]) => code)

  expect(codes.length).toBeGreaterThan(0)
  expect(documented.sort()).toEqual(codes.sort())
})

test('the README shows the quick start as it runs', async () => {
  const example = await read('examples/quick-start.ts')
  const shown = (await read('README.md')).match(/```ts\n\/\/ 1\. The mutation[\s\S]*?```/)?.[0] ?? ''
  const code = shown.replace('```ts\n', '').replace(/\n?```$/, '')

  expect(code.length).toBeGreaterThan(500)
  expect(example).toContain(code)
})

test('docs/observing-your-service.md installs the versions that are tested', async () => {
  const { devDependencies } = JSON.parse(await read('package.json')) as { devDependencies: Record<string, string> }
  const named = [...(await read('docs/observing-your-service.md')).matchAll(/(@opentelemetry\/[\w-]+)@([\d.]+)/g)]

  expect(named.length).toBeGreaterThan(0)
  for (const [, name = '', version] of named) expect([name, version]).toEqual([name, devDependencies[name]])
})
