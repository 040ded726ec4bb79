import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from '@jest/globals'
import { freePorts } from '../../src/local/free-ports.ts'
import { startService } from '../../src/local/service-process.ts'

async function place() {
  const dir = await mkdtemp(join(tmpdir(), 'service-'))
  const [port = 0] = await freePorts(1)
  const url = `http://127.0.0.1:${port}`
  return { pidFile: join(dir, 'pid'), port, url, [Symbol.asyncDispose]: () => rm(dir, { recursive: true }) }
}

test('a service that ends before it is ready never counts as ready, and its pid file goes with it', async () => {
  await using where = await place()
  await using service = await startService({
    name: 'The service',
    command: [process.execPath, '-e', 'process.exit(3)'],
    env: {},
    pidFile: where.pidFile,
  })

  expect(await service.untilReady(where.url)).toBe(false)
  await expect(service.failed).rejects.toThrow('The service ended by itself (exit code 3); its log above says why.')
  await expect(readFile(where.pidFile)).rejects.toThrow('ENOENT')
})

test('a service that ends by itself with exit code 0 has finished, and has not failed', async () => {
  await using where = await place()
  await using service = await startService({
    name: 'The service',
    command: [process.execPath, '-e', '0'],
    env: {},
    pidFile: where.pidFile,
  })

  await Promise.race([service.finished, service.failed])

  await expect(readFile(where.pidFile)).rejects.toThrow('ENOENT')
})

test('of a service that was killed from outside no log is said to tell why', async () => {
  await using where = await place()
  await using service = await startService({
    name: 'The service',
    command: ['sleep', '100'],
    env: {},
    pidFile: where.pidFile,
  })

  process.kill(Number(await readFile(where.pidFile, 'utf8')), 'SIGKILL')

  await expect(service.failed).rejects.toThrow(
    'The service was killed from outside (signal SIGKILL): by somebody, or by the system for want of memory.',
  )
})
