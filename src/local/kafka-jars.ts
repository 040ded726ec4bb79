/** Apache Kafka as Maven publishes it, fetched once for all checkouts, and the Java that runs it. */
import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdir, readFile, rename, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { cacheDir } from './config.ts'
import { exists } from './exists.ts'
import { startGuarded } from './guarded-process.ts'
import { StackError } from './stack-error.ts'

const run = promisify(execFile)
const pom = fileURLToPath(new URL('../../stack/kafka/pom.xml', import.meta.url))
const instead = 'or set KAFKA_BROKERS to a Kafka of yours, or use compose.yaml'

export interface FetchOptions {
  /** Called before the jars are fetched. */
  readonly onFetch: () => void
  /** Awaited after they were, with their folder. */
  readonly onFetched: (jars: string) => Promise<void>
}

/**
 * The folder of Kafka's jars, by version outside the checkout. The first time
 * it is fetched with Maven. Throws {@link StackError} when that fails.
 */
export async function kafkaJars({ onFetch, onFetched }: FetchOptions): Promise<string> {
  const jars = await jarsFolder()
  if (await exists(jars)) return jars
  await makeCacheDir(dirname(jars))
  onFetch()
  await fetchJars(jars)
  await onFetched(jars)
  return jars
}

/** What is missing on this machine to run Kafka, a sentence each: a Java of version 17 or later, and Maven while the jars are to be fetched. */
export async function kafkaProblems(): Promise<readonly string[]> {
  const found = await Promise.all([javaProblem(), mavenProblem()])
  return found.filter((problem) => problem !== null)
}

async function javaProblem(): Promise<string | null> {
  const needs = `Kafka needs Java 17 or later`
  const remedy = `Install it (Debian: apt install openjdk-17-jre-headless), ${instead}.`
  const java = await run('java', ['-version']).catch(() => null)
  if (java === null) return `${needs}, and there is no java on the path. ${remedy}`
  const major = Number(/version "(\d+)/.exec(java.stderr)?.[1])
  return major < 17 ? `${needs}, and java on the path is ${major}. ${remedy}` : null
}

async function mavenProblem(): Promise<string | null> {
  if (await exists(await jarsFolder())) return null
  const maven = await run('mvn', ['-v']).catch(() => null)
  if (maven !== null) return null
  return `Maven (mvn) fetches Kafka and is not installed. Install it (Debian: apt install maven), ${instead}.`
}

async function jarsFolder(): Promise<string> {
  const text = await readFile(pom, 'utf8')
  const version = /<version>(\d[\d.]+)<\/version>/.exec(text)?.[1]
  const edition = createHash('sha256').update(text).digest('hex').slice(0, 8)
  return join(cacheDir(), `kafka-${version}-${edition}`)
}

/** Several processes may fetch at once: each into a folder of its own, and one wins whole. */
async function fetchJars(jars: string): Promise<void> {
  const partial = `${jars}.${process.pid}`
  const log = `${partial}.log`
  const goal = ['dependency:copy-dependencies', `-DoutputDirectory=${partial}`, '-DincludeScope=runtime']
  const maven = startGuarded({
    command: ['mvn', '-q', '-B', '-f', pom, ...goal],
    logFile: log,
    stopSignal: 'SIGTERM',
    orphanGraceSeconds: 2,
  })
  try {
    const how = await maven.ended
    if (how === 'exit code 0') await rename(partial, jars)
    else fail(how, await readFile(log, 'utf8'))
  } catch (error) {
    if (!(await exists(jars))) throw error
  } finally {
    await rm(partial, { recursive: true, force: true })
    await rm(log, { force: true })
  }
}

function fail(how: string, log: string): never {
  const reason = log.split('\n').find((line) => line.includes('ERROR')) ?? how
  throw new StackError(`Maven could not fetch Kafka (${reason.trim()}). Check the network, ${instead}.`)
}

async function makeCacheDir(dir: string): Promise<void> {
  try {
    await mkdir(dir, { recursive: true })
  } catch (cause) {
    throw new StackError(
      `${dir} cannot be made for Kafka's jars: ${(cause as Error).message}. Set XDG_CACHE_HOME to another folder.`,
      { cause },
    )
  }
}
