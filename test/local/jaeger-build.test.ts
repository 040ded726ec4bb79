import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { expect, test } from '@jest/globals'
import { buildUnderWay, noteBuild } from '../../src/local/build-note.ts'
import { freePorts, portIsFree } from '../../src/local/free-ports.ts'
import { buildJaeger } from '../../src/local/jaeger-binary.ts'
import { standInForJaeger } from '../../src/local/trace-stand-in.ts'

async function place() {
  const dir = await mkdtemp(join(tmpdir(), 'jaeger-build-'))
  return { dir, [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }) }
}

/** A compiler that names two packages, and is done once there is a file `done` in `dir`. */
async function slowGo(dir: string): Promise<AsyncDisposable> {
  const bin = join(dir, 'bin')
  await mkdir(bin)
  const go = `#!/bin/sh
printf '%s\\n' 'go: downloading example.com/b v1.0.0' runtime example.com/b/c >&2
while ! [ -e '${dir}/done' ]; do sleep 0.05; done
echo built > "$4"
`
  await writeFile(join(bin, 'go'), go, { mode: 0o755 })
  const { PATH, XDG_CACHE_HOME } = process.env
  Object.assign(process.env, { PATH: `${bin}${delimiter}${PATH}`, XDG_CACHE_HOME: dir })
  return {
    async [Symbol.asyncDispose]() {
      process.env.PATH = PATH
      if (XDG_CACHE_HOME === undefined) delete process.env.XDG_CACHE_HOME
      else process.env.XDG_CACHE_HOME = XDG_CACHE_HOME
    },
  }
}

test('a build of Jaeger says from time to time how far it is, and where its log is', async () => {
  await using where = await place()
  await using _go = await slowGo(where.dir)
  const logs: Promise<string>[] = []

  const built = await buildJaeger({
    signal: new AbortController().signal,
    progressMs: 20,
    onProgress({ packageCount, logFile }) {
      if (packageCount < 2 || logs.length > 0) return
      logs.push(readFile(logFile, 'utf8'))
      void writeFile(join(where.dir, 'done'), '')
    },
  })

  expect(await readFile(built, 'utf8')).toBe('built\n')
  expect(await logs[0]).toContain('example.com/b/c')
})

test('a build is noted while it is under way, and a note of a process that was killed is none', async () => {
  await using where = await place()
  const note = await noteBuild(where.dir)
  expect(await buildUnderWay(where.dir)).toBeGreaterThanOrEqual(0)

  await note[Symbol.asyncDispose]()
  expect(await buildUnderWay(where.dir)).toBeNull()

  await writeFile(join(where.dir, 'building'), '{"pid":2147483646,"since":0}')
  expect(await buildUnderWay(where.dir)).toBeNull()
})

test('what stands in for Jaeger takes spans, and gives its port to whoever comes after it', async () => {
  const [port = 0] = await freePorts(1)
  const standIn = await standInForJaeger(port)

  const answer = await fetch(`http://127.0.0.1:${port}/v1/traces`, { method: 'POST', body: 'x'.repeat(1_000_000) })

  expect(answer.status).toBe(200)
  expect(await answer.text()).toBe('')
  await standIn[Symbol.asyncDispose]()
  expect(await portIsFree(port)).toBe(true)
})
