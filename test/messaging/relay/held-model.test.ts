/**
 * The relay's held keys against a model of them: real relays over memory in
 * virtual time, whatever happens to them in whatever order. A run that fails is
 * printed with its seed and paths, already made as short as it could be; they
 * repeat it as MODEL_SEED, MODEL_PATH and MODEL_REPLAY.
 */
import assert from 'node:assert/strict'
import { test } from '@jest/globals'
import fc from 'fast-check'
import { KEYS, steps } from '../../support/held-model/commands.ts'
import { RelayModel } from '../../support/held-model/model.ts'
import { Scene } from '../../support/held-model/scene.ts'

const { MODEL_SEED: seed, MODEL_PATH: path, MODEL_RUNS: runs, TEST_LONG: long } = process.env

test('sends what may be sent, in order, and nothing of what is held, parked or skipped', async () => {
  const commands = fc.commands(steps, {
    maxCommands: 60,
    size: 'max',
    ...(path && { replayPath: process.env.MODEL_REPLAY ?? '' }),
  })
  const shape = fc.record({
    seed: fc.nat(),
    batchSize: fc.constantFrom(1, 3, 50),
    partitionCount: fc.constantFrom(1, 2),
  })
  const property = fc.asyncProperty(shape, commands, async (options, chosen) => {
    const model = new RelayModel(KEYS)
    const scene = new Scene(model, options)
    await scene.pass(5_000)
    await fc.asyncModelRun(() => ({ model, real: scene }), chosen)
    await scene.finish()
    judge(model, scene)
  })
  await fc.assert(property, {
    numRuns: Number(runs ?? (long ? 3_000 : 80)),
    ...(seed && { seed: Number(seed) }),
    ...(path && { path }),
  })
}, 600_000)

/** In the end all is published in order, or skipped and nowhere. */
function judge(model: RelayModel, scene: Scene): void {
  assert.deepEqual(model.violations, [])
  for (const { name, events, hold } of model.keys) {
    const wanted = events.filter(({ skipped }) => !skipped).map(({ id }) => id)
    assert.deepEqual(scene.topicOf(name), wanted, `what lies on the topic of ${name}`)
    assert.equal(hold, null, `${name} is still held`)
    assert.deepEqual(
      events.filter(({ settled, skipped }) => settled === skipped),
      [],
      `events of ${name} are neither settled nor skipped`,
    )
  }
}
