/** What can happen to a relay and its keys, one thing at a time; after each, what the model says of it. */
import assert from 'node:assert/strict'
import fc, { type AsyncCommand } from 'fast-check'
import type { RelayModel } from './model.ts'
import type { Scene } from './scene.ts'

/** Every key has partitions and lanes as they come; two of them share a partition at least. */
export const KEYS = ['a', 'b', 'c', 'd'] as const

type Expectation = Pick<RelayModel, 'key' | 'violations'>

type Step = AsyncCommand<Expectation, Scene>

interface StepOptions {
  /** Whether it makes sense now. @defaultValue always */
  readonly when?: (model: Expectation) => boolean
}

/** A step: `act` does it, and no promise may be broken by then. */
function step(
  name: string,
  act: (scene: Scene) => void | Promise<void>,
  { when = () => true }: StepOptions = {},
): Step {
  return {
    check: (model) => when(model),
    run: async (model, scene) => {
      await act(scene)
      // Whatever follows at once has followed.
      await scene.pass(0)
      assert.deepEqual(model.violations, [])
    },
    toString: () => name,
  }
}

const key = fc.constantFrom(...KEYS)
const relay = fc.constantFrom(0, 1)
const few = fc.integer({ min: 1, max: 3 })

const append = fc
  .tuple(key, few)
  .map(([name, count]) => step(`append ${count} to ${name}`, (scene) => void scene.append(name, count)))

const refuse = fc
  .tuple(key, few)
  .map(([name, count]) =>
    step(`append ${count} to ${name}, the first refused`, (scene) => scene.refuse(scene.append(name, count))),
  )

const refuseLater = fc
  .tuple(key, fc.constantFrom('answer lost' as const, 'request lost' as const))
  .map(([name, kind]) =>
    step(`append 1 to ${name}, ${kind}, then refused`, (scene) => scene.refuse(scene.append(name, 1), kind)),
  )

const pass = fc.constantFrom(1, 50, 500, 2_000, 10_000).map((ms) => step(`${ms} ms pass`, (scene) => scene.pass(ms)))

function ask(request: 'resume' | 'skip' | 'retry_now'): fc.Arbitrary<Step> {
  return key.map((name) =>
    step(`${request} ${name}`, (scene) => scene.ask(name, request), {
      when: (model) => model.key(name).hold?.parked === (request !== 'retry_now'),
    }),
  )
}

/** The commands; what makes things happen is there more often than what breaks them. */
export const steps: fc.Arbitrary<Step>[] = [
  ...[append, append, append, refuse, refuse, refuseLater, refuseLater],
  ...[pass, pass, pass, pass],
  ...[ask('resume'), ask('skip'), ask('skip'), ask('retry_now')],
  key.map((name) => step(`accept what was refused of ${name}`, (scene) => scene.accept(name))),
  few.map((count) => step(`lose ${count} answers`, ({ broker }) => void broker.faults.loseAnswers(count))),
  few.map((count) => step(`lose ${count} requests`, ({ broker }) => void broker.faults.loseRequests(count))),
  fc.constant(step('broker away', ({ broker }) => void broker.faults.outage())),
  fc
    .constantFrom(30, 3_000, 20_000)
    .map((ms) => step(`each request takes ${ms} ms`, ({ broker }) => void broker.faults.delay(ms))),
  fc.constant(step('mend', (scene) => scene.mend())),
  relay.map((index) => step(`freeze relay ${index}`, (scene) => scene.freeze(index))),
  relay.map((index) => step(`thaw relay ${index}`, (scene) => scene.thaw(index))),
  relay.map((index) => step(`kill relay ${index}`, (scene) => scene.kill(index))),
  relay.map((index) => step(`restart relay ${index}`, (scene) => scene.restart(index))),
  relay.map((index) => step(`relay ${index} reads`, (scene) => scene.wake(index))),
  fc.constant(step('50 s pass', (scene) => scene.pass(50_000))),
  fc.constant(step('all that is not held flows', flow)),
]

/** Whatever is held elsewhere: a key that is not held and has nothing refused is published. */
async function flow(scene: Scene): Promise<void> {
  scene.mend()
  await scene.pass(60_000)
  for (const { name, events, hold } of scene.model.keys) {
    if (hold !== null || events.some(({ id }) => scene.refuses(id))) continue
    assert.deepEqual(
      events.filter(({ settled, skipped }) => !settled && !skipped),
      [],
      `events of ${name} wait though it is not held`,
    )
  }
}
