/**
 * `npm run test:mutations`: takes each rule out of the code, one at a time, and
 * demands that the test named beside it goes red. The same test is first seen
 * to be green on the code as it is.
 */
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import startServers from '../support/global-setup.ts'
import stopServers from '../support/global-teardown.ts'
import { MUTATIONS } from './all.ts'
import type { Mutation } from './mutation.ts'
import { type TestOutcome, Tree } from './tree.ts'

const ROOT = fileURLToPath(new URL('../..', import.meta.url))

interface Result {
  readonly mutation: string
  readonly test: string
  /** Titles of the tests that went red. */
  readonly red: readonly string[]
  /** What is wrong with the pair; `null` when the mutation was noticed. */
  readonly problem: string | null
  readonly message: string
  readonly seconds: number
}

/** What each test said of the code as it is. */
const baselines = new Map<string, Promise<TestOutcome>>()

const { values } = parseArgs({
  options: {
    only: { type: 'string', multiple: true },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
if (values.help) {
  console.log(
    'npm run test:mutations -- [--only NAME]... [--json]\n\n--only  mutations whose name holds NAME\n--json  results as JSON instead of a table',
  )
  process.exit()
}

const chosen = MUTATIONS.filter(({ name }) => (values.only ?? ['']).some((part) => name.includes(part)))
const results = chosen.length === 0 ? [] : await runAll(chosen)
if (values.json) console.log(JSON.stringify(results, null, 2))
else report(results)
process.exitCode = results.length > 0 && results.every(({ problem }) => problem === null) ? 0 : 1

async function runAll(mutations: readonly Mutation[]): Promise<readonly Result[]> {
  await startServers()
  try {
    const left = [...mutations]
    const done = new Map<Mutation, Result>()
    const worker = async () => {
      await using tree = await Tree.copy(ROOT)
      for (let next = left.shift(); next !== undefined; next = left.shift()) {
        const result = await runOne(tree, next)
        done.set(next, result)
        if (!values.json) console.error(`${result.problem ?? 'red'}: ${next.name} (${result.seconds} s)`)
      }
    }
    await Promise.all(Array.from({ length: Math.min(left.length, availableParallelism()) }, worker))
    return mutations.flatMap((mutation) => done.get(mutation) ?? [])
  } finally {
    await stopServers()
  }
}

async function runOne(tree: Tree, mutation: Mutation): Promise<Result> {
  const { name, edits, test, title } = mutation
  const from = performance.now()
  const result = (problem: string | null, { failed, message }: Pick<TestOutcome, 'failed' | 'message'>): Result => {
    const seconds = Math.round((performance.now() - from) / 100) / 10
    return { mutation: name, test, red: failed, problem, message, seconds }
  }
  try {
    const baseline = baselines.get(`${test} ${title}`) ?? tree.test(test, title)
    baselines.set(`${test} ${title}`, baseline)
    const before = await baseline
    if (before.kind !== 'green') return result(`not green without it (${before.kind})`, before)

    await using _altered = await tree.alter(edits)
    const after = await tree.test(test, title)
    return result(after.kind === 'red' ? null : `not noticed (${after.kind})`, after)
  } catch (error) {
    return result('out of date', { failed: [], message: error instanceof Error ? error.message : String(error) })
  }
}

function report(results: readonly Result[]): void {
  console.log('| rule taken out | test that went red |\n| --- | --- |')
  for (const { mutation, test, red, problem } of results) {
    const [first, ...others] = red
    const more = others.length > 0 ? ` and ${others.length} more` : ''
    console.log(`| ${mutation} | ${problem ?? `\`${test}\`: ${first}${more}`} |`)
  }
  for (const { mutation, problem, message } of results) {
    if (problem !== null) console.log(`\n${mutation}: ${problem}\n${message}`)
  }
  const missed = results.filter(({ problem }) => problem !== null).length
  console.log(`\n${results.length - missed} of ${results.length} noticed`)
}
