/** The picture in ARCHITECTURE.md, as rules: imports go down. Each line lists all of ours that a part may reach. */
const mayImport = (part, ...allowed) => ({
  name: `${part} imports only ${allowed.join(', ') || 'itself'}`,
  severity: 'error',
  from: { path: `^src/${part}/` },
  to: { path: '^src/', pathNot: [part, ...allowed].map((other) => `^src/${other}(/|\\.ts$)`) },
})

const ground = 'messaging/(envelope|transport|source|errors|options|json|lifecycle|telemetry|transaction)'
const library = ['messaging/index', 'messaging/kafka/index']

module.exports = {
  forbidden: [
    { name: 'no cycles', severity: 'error', from: {}, to: { circular: true } },

    // One file that imports nothing: telemetry needs it before the library is loaded, which is patched as it is.
    mayImport('service', 'graphql', 'orders', ...library, 'messaging/telemetry/stack-frames'),
    // The service's settings are read before servers are started for them: a mistake is told at once and not after a minute.
    mayImport('local', 'messaging/index', 'service/config'),
    mayImport('graphql', 'orders', 'messaging/index'),
    mayImport('orders', 'messaging/index'),
    mayImport('messaging'),

    mayImport('messaging/relay', 'messaging/(outbox|dead-letters)', ground),
    mayImport('messaging/consumer', 'messaging/(inbox|dead-letters)', ground),
    mayImport('messaging/retention', 'messaging/(outbox|inbox|dead-letters)', ground),
    mayImport('messaging/dead-letters', 'messaging/(outbox|inbox)', ground),
    ...['outbox', 'inbox', 'kafka', 'testing'].map((part) => mayImport(`messaging/${part}`, ground)),
    mayImport('messaging/lifecycle', 'messaging/errors'),
    mayImport('messaging/transaction', 'messaging/errors'),
    mayImport('messaging/telemetry', 'messaging/(envelope|transport|errors|options|lifecycle|transaction)'),
    {
      name: 'only the kafka folder knows a Kafka client',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(messaging/kafka|local)/' },
      to: { path: 'node_modules/(kafkajs|@platformatic/kafka)' },
    },
    {
      name: 'the library knows the OpenTelemetry API, never an SDK',
      severity: 'error',
      from: { path: '^src/messaging/' },
      to: { path: 'node_modules/@opentelemetry/(?!api/)' },
    },
  ],
  options: {
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
  },
}
