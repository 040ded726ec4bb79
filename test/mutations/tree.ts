/** A copy of the working tree in which a test can be run on code that was altered. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import type { Edit } from './mutation.ts'

/** Not of the code: what was installed, built, or left by runs. */
const LEFT_OUT = new Set(['node_modules', '.git', '.data', 'dist', 'coverage'])

/** Of the usual settings for tests of parts, but with servers that run already. */
const CONFIG = 'jest.mutations.config.js'
const CONFIG_TEXT = `import base from './jest.config.js'

const { globalSetup, globalTeardown, ...parts } = base.projects.find(({ displayName }) => displayName === 'parts')
export default { ...base, projects: [parts] }
`

/** Milliseconds for one test; a mutation may make it wait for what never comes. */
const TEST_MS = 300_000

/** What a test said. */
export interface TestOutcome {
  /** `none` when no test has the title, `broken` when the file could not be run at all. */
  readonly kind: 'green' | 'red' | 'none' | 'broken'
  /** Full titles of the tests that failed. */
  readonly failed: readonly string[]
  /** The first lines of the first failure, or of what went wrong. */
  readonly message: string
}

interface JestReport {
  readonly numFailedTests: number
  readonly numPassedTests: number
  readonly testResults: readonly {
    readonly message: string
    readonly assertionResults: readonly {
      readonly status: string
      readonly fullName: string
      readonly failureMessages: readonly string[]
    }[]
  }[]
}

export class Tree implements AsyncDisposable {
  readonly #dir: string

  private constructor(dir: string) {
    this.#dir = dir
  }

  /** Copies the tree at `root`; what is installed there is shared. */
  static async copy(root: string): Promise<Tree> {
    const dir = await mkdtemp(join(tmpdir(), 'graphql-outbox-mutations-'))
    await cp(root, dir, { recursive: true, filter: (source) => !LEFT_OUT.has(basename(source)) })
    await symlink(join(root, 'node_modules'), join(dir, 'node_modules'))
    await writeFile(join(dir, CONFIG), CONFIG_TEXT)
    return new Tree(dir)
  }

  /** Alters files until the scope ends. Throws where a text is not found exactly once. */
  async alter(edits: readonly Edit[]): Promise<AsyncDisposable> {
    const originals = new Map<string, string>()
    const altered = new Map<string, string>()
    for (const { file, find, replace } of edits) {
      const path = join(this.#dir, file)
      if (!originals.has(path)) originals.set(path, await readFile(path, 'utf8'))
      const text = altered.get(path) ?? originals.get(path) ?? ''
      const count = text.split(find).length - 1
      if (count !== 1) throw new Error(`${file} has the text to replace ${count} times: ${find}`)
      altered.set(
        path,
        text.replace(find, () => replace),
      )
    }
    for (const [path, text] of altered) await writeFile(path, text)
    return {
      [Symbol.asyncDispose]: async () => {
        for (const [path, text] of originals) await writeFile(path, text)
      },
    }
  }

  /** Runs the tests of `file` whose full titles hold `title`. */
  async test(file: string, title: string): Promise<TestOutcome> {
    const report = join(this.#dir, 'mutations-report.json')
    await rm(report, { force: true })
    const args = [
      '--experimental-vm-modules',
      '--no-warnings',
      'node_modules/jest/bin/jest.js',
      file,
      '--config',
      CONFIG,
    ]
    const options = ['--runInBand', '--forceExit', '--silent', '--json', '--outputFile', report, '-t', escaped(title)]
    const child = spawn(process.execPath, [...args, ...options], {
      cwd: this.#dir,
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    let said = ''
    child.stderr.on('data', (chunk) => {
      said += String(chunk)
    })
    const timer = setTimeout(() => child.kill('SIGKILL'), TEST_MS)
    const [, signal] = (await once(child, 'close')) as [number | null, string | null]
    clearTimeout(timer)
    if (signal !== null) return { kind: 'red', failed: [title], message: `it did not end within ${TEST_MS} ms` }
    const text = await readFile(report, 'utf8').catch(() => null)
    if (text === null) return { kind: 'broken', failed: [], message: said.slice(-1_000) }
    return outcomeOf(JSON.parse(text) as JestReport)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#dir, { recursive: true, force: true })
  }
}

function outcomeOf({ numFailedTests, numPassedTests, testResults }: JestReport): TestOutcome {
  const failures = testResults.flatMap(({ assertionResults }) =>
    assertionResults.filter(({ status }) => status === 'failed'),
  )
  const failed = failures.map(({ fullName }) => fullName)
  const [message = ''] = failures.flatMap(({ failureMessages }) => failureMessages)
  if (numFailedTests > 0) return { kind: 'red', failed, message: firstLines(message) }
  if (numPassedTests > 0) return { kind: 'green', failed, message: '' }
  const said = testResults.map((result) => result.message).join('\n')
  return { kind: said === '' ? 'none' : 'broken', failed, message: firstLines(said) }
}

function firstLines(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: jest colours what it says.
  const plain = text.replace(/\u001b\[\d*m/g, '')
  return plain
    .split('\n')
    .filter((line) => line.trim() !== '')
    .slice(0, 20)
    .join('\n')
}

function escaped(title: string): string {
  return title.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')
}
