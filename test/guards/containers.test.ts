/**
 * What those have who have containers: compose.yaml, and the files that it mounts.
 * No test runs the images; each file is read by the tool that it is for, or
 * else held to what that tool's documentation allows.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { expect, test } from '@jest/globals'
import { parse } from 'yaml'
import { z } from 'zod'
import { jaegerBinary } from '../../src/local/jaeger-binary.ts'

const root = fileURLToPath(new URL('../../', import.meta.url))
const read = (path: string): unknown => parse(readFileSync(join(root, path), 'utf8'))

const environment = z.record(z.string(), z.union([z.string(), z.number()]))
const composeFile = z.strictObject({
  name: z.string().optional(),
  services: z.record(
    z.string(),
    z.strictObject({
      // A version, and all of it: what was written for one is not tried with another in silence.
      image: z.string().regex(/^[\w./-]+:v?\d+\.\d+(\.\d+)?$/),
      command: z.array(z.string()).optional(),
      environment: environment.optional(),
      network_mode: z.literal('host').optional(),
      // On the loopback alone: none of them asks for a password that is one.
      ports: z.array(z.string().regex(/^127\.0\.0\.1:\d+:\d+$/)).optional(),
      volumes: z.array(z.string().regex(/^[^:]+:\/[^:]+(:ro)?$/)).optional(),
      healthcheck: z
        .strictObject({
          test: z.array(z.string()),
          interval: z.string().regex(/^\d+s$/),
          timeout: z
            .string()
            .regex(/^\d+s$/)
            .optional(),
          retries: z.number(),
        })
        .optional(),
    }),
  ),
  volumes: z.record(z.string(), z.null()),
})

const composed = composeFile.parse(read('compose.yaml'))
const { services } = composed

/** Where a service finds what of ours it mounts: path in the container to path in the repository. */
function mountsOf(name: string): Map<string, string> {
  const mounts = services[name]?.volumes ?? []
  return new Map(
    mounts
      .map((mount) => mount.split(':'))
      .flatMap(([from = '', to = '']) => (from.startsWith('./') ? [[to, from]] : [])),
  )
}

test('one command has it all: the servers, and what looks at them', () => {
  expect(Object.keys(services)).toEqual(['postgres', 'kafka', 'jaeger', 'prometheus', 'grafana'])
})

test('every volume is declared, and every mounted file is there', () => {
  const mounts = Object.values(services).flatMap(({ volumes = [] }) =>
    volumes.map((mount) => mount.split(':')[0] ?? ''),
  )
  const declared = Object.keys(composed.volumes)

  expect(mounts.filter((from) => !from.startsWith('./')).sort()).toEqual(declared.sort())
  expect(mounts.filter((from) => from.startsWith('./') && !existsSync(join(root, from)))).toEqual([])
})

test('each program is pointed at the file that is mounted for it', () => {
  const arguments_ = (name: string) => services[name]?.command?.join(' ') ?? ''

  expect(mountsOf('jaeger').get(/--config (\S+)/.exec(arguments_('jaeger'))?.[1] ?? '')).toBe(
    './observability/jaeger.yaml',
  )
  const config = /--config\.file=(\S+)/.exec(arguments_('prometheus'))?.[1] ?? ''
  expect(mountsOf('prometheus').get(config)).toBe('./observability/prometheus.yaml')
  const { rule_files: rules } = read('observability/prometheus.yaml') as { rule_files: string[] }
  for (const rule of rules) expect(mountsOf('prometheus').get(join(config, '..', rule))).toBe(`./observability/${rule}`)
  expect(mountsOf('grafana').get('/etc/grafana/provisioning')).toBe('./observability/grafana')
  expect(mountsOf('grafana').get(String(services.grafana?.environment?.DASHBOARDS_DIR))).toBe(
    './observability/dashboards',
  )
})

/** What Grafana's documentation of provisioning allows, as far as we use it. */
const provisioning = {
  datasources: z.strictObject({
    apiVersion: z.literal(1),
    datasources: z.array(
      z.strictObject({
        name: z.string(),
        uid: z.literal('prometheus'),
        type: z.literal('prometheus'),
        url: z.string(),
        isDefault: z.boolean(),
      }),
    ),
  }),
  dashboards: z.strictObject({
    apiVersion: z.literal(1),
    providers: z.array(
      z.strictObject({
        name: z.string(),
        folder: z.string(),
        type: z.literal('file'),
        options: z.strictObject({ path: z.string() }),
      }),
    ),
  }),
}

test('Grafana is provisioned with files of the shape that it reads, and with variables that it is given', () => {
  const folders = readdirSync(join(root, 'observability/grafana'))
  expect(folders.sort()).toEqual(Object.keys(provisioning).sort())
  for (const [folder, shape] of Object.entries(provisioning)) {
    for (const file of readdirSync(join(root, 'observability/grafana', folder))) {
      const path = join('observability/grafana', folder, file)
      expect(shape.safeParse(read(path)).error?.issues).toBeUndefined()
      const named = [...readFileSync(join(root, path), 'utf8').matchAll(/\$(\w+)/g)].map(([, name]) => name)
      expect(Object.keys(services.grafana?.environment ?? {})).toEqual(expect.arrayContaining(named))
    }
  }
})

test("what the containers' Jaeger is told of its place, its file asks for", () => {
  const text = readFileSync(join(root, 'observability/jaeger.yaml'), 'utf8')
  const asked = new Set([...text.matchAll(/\$\{env:(\w+)(:-[^}]+)?\}/g)].map(([, name]) => name))
  const withoutDefault = [...text.matchAll(/\$\{env:\w+\}/g)]

  expect(withoutDefault).toEqual([])
  expect(Object.keys(services.jaeger?.environment ?? {}).filter((name) => !asked.has(name))).toEqual([])
})

// Where nobody has built Jaeger this is skipped, as a guard does not build for minutes. In CI the system tests,
// which come first, have; they also start it with this file.
const jaeger = await jaegerBinary()
const withJaeger = jaeger === null ? test.skip : test

withJaeger('Jaeger accepts its configuration', () => {
  execFileSync(jaeger ?? 'jaeger', ['validate', '--config', join(root, 'observability/jaeger.yaml')], { stdio: 'pipe' })
})

// Where Prometheus' own tool is missing this is skipped, and shown as such; in CI that is a failure.
const hasPromtool = spawnSync('promtool', ['--version']).status === 0
const withPromtool = hasPromtool || process.env.CI ? test : test.skip

withPromtool('Prometheus accepts its configuration, with the rules that it names', () => {
  const said = execFileSync('promtool', ['check', 'config', 'observability/prometheus.yaml'], {
    cwd: root,
    encoding: 'utf8',
  })

  expect(said).toMatch(/SUCCESS: 1 rule files found[\s\S]*SUCCESS: \d+ rules found/)
})

const hasCompose = spawnSync('docker', ['compose', 'version']).status === 0
const withCompose = hasCompose ? test : test.skip

withCompose('Docker Compose accepts the file', () => {
  execFileSync('docker', ['compose', '-f', 'compose.yaml', 'config', '--quiet'], { cwd: root, stdio: 'pipe' })
})
