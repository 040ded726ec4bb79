import { expect, test } from '@jest/globals'
import { SETTINGS } from '../../src/service/config.ts'
import { misspelt } from '../../src/service/misspelt.ts'

test.each([
  ['KAFKA_BROKER', 'KAFKA_BROKERS'],
  ['RELAY_THREAD', 'RELAY_THREADS'],
  ['DATABASE_URI', 'DATABASE_URL'],
  ['KAKFA_BROKERS', 'KAFKA_BROKERS'],
  ['OUTBOX_TRACE_WAIT', 'OUTBOX_TRACES_WAIT'],
  ['KAFKA_SASL_PASWORD_FILE', 'KAFKA_SASL_PASSWORD_FILE'],
])('%s is told, with %s as what was meant', (name, meant) => {
  expect(misspelt({ [name]: 'secret' }, SETTINGS)).toEqual([`Unknown setting ${name}; did you mean ${meant}?`])
})

test('variables of others are left alone', () => {
  const foreign = [
    'KAFKA_HOME',
    'KAFKA_OPTS',
    'KAFKA_HEAP_OPTS',
    'KAFKA_PORT',
    'KAFKA_SERVICE_HOST',
    'KAFKA_IP',
    'KAFKA_CLASSPATH',
    'DATABASE_HOST',
    'DATABASE_NAME',
    'ADMIN_HOST',
    'ADMIN_EMAIL',
    'LOG_FILE',
    'LOG_DIR',
    'LOGNAME',
    'HOSTNAME',
    'HOSTS',
    'ROLE',
    'NODE_PATH',
    'NODE_OPTIONS',
    'OTEL_EXPORTER_OTLP_HEADERS',
    'JAEGER_URL',
  ]

  expect(misspelt(Object.fromEntries(foreign.map((name) => [name, 'x'])), SETTINGS)).toEqual([])
})

test('what is near a setting that is set itself belongs to somebody else', () => {
  expect(misspelt({ DATABASE_URI: 'x', DATABASE_URL: 'y' }, SETTINGS)).toEqual([])
})
