import { afterEach, beforeEach, expect, jest, test } from '@jest/globals'
import { TelemetryProblems } from '../../src/service/telemetry-problems.ts'

beforeEach(() => {
  jest.useFakeTimers()
})
afterEach(() => {
  jest.useRealTimers()
})

function listening() {
  const problems = new TelemetryProblems()
  const told: string[] = []
  problems.listen((problem) => told.push(problem))
  return { problems, told, drop: (count: number) => dropIn(problems, count) }
}

/** As the SDK says it. */
function dropIn({ logger }: TelemetryProblems, count: number): void {
  logger.warn(`Dropped ${count} spans because maxQueueSize reached`)
}

test('the first spans that are dropped are told at once, and later ones in sums, once a minute', () => {
  const { told, drop } = listening()

  drop(5)
  for (let second = 0; second < 90; second += 1) {
    drop(2)
    jest.advanceTimersByTime(1_000)
  }
  jest.advanceTimersByTime(300_000)
  drop(7)

  expect(told).toEqual(
    [5, 120, 60, 7].map((count) => `Telemetry: ${count} spans were dropped, since the queue was full`),
  )
})

test('the same problem is told once a minute, another one at once, and a listener hears what was before it', () => {
  const problems = new TelemetryProblems()
  const told: string[] = []
  dropIn(problems, 1)
  problems.logger.error('{"stack":"Error: Timeout\\n at x","message":"Timeout","name":"Error"}')

  problems.listen((problem) => told.push(problem))
  problems.logger.error('{"message":"Timeout"}')
  problems.logger.error('{"message":"connect ECONNREFUSED 127.0.0.1:4318"}')
  jest.advanceTimersByTime(60_001)
  problems.logger.error('{"message":"Timeout"}')

  expect(told).toEqual([
    'Telemetry: 1 spans were dropped, since the queue was full',
    'Telemetry: the collector does not answer in time',
    'Telemetry: connect ECONNREFUSED 127.0.0.1:4318',
    'Telemetry: the collector does not answer in time',
  ])
})
