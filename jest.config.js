/** Three kinds of tests: parts (real Postgres and Kafka, in this process), system (whole processes, killed and restarted), guards (no services). */
const shared = {
  testEnvironment: 'node',
  extensionsToTreatAsEsm: ['.ts'],
  transform: {
    '\\.ts$': [
      '@swc/jest',
      { jsc: { target: 'es2024', parser: { syntax: 'typescript' } }, module: { type: 'es6' }, sourceMaps: 'inline' },
    ],
  },
}

export default {
  // Tests wait for events; this only ends the hopeless ones, also on a busy machine. What they wait with gives up
  // sooner, and says what did not come.
  testTimeout: 240_000,
  projects: [
    {
      ...shared,
      displayName: 'parts',
      testMatch: ['<rootDir>/test/**/*.test.ts'],
      testPathIgnorePatterns: ['<rootDir>/test/(system|guards)/'],
      globalSetup: '<rootDir>/test/support/global-setup.ts',
      globalTeardown: '<rootDir>/test/support/global-teardown.ts',
    },
    {
      ...shared,
      displayName: 'system',
      testMatch: ['<rootDir>/test/system/**/*.test.ts'],
      globalTeardown: '<rootDir>/test/support/global-teardown.ts',
    },
    {
      ...shared,
      displayName: 'guards',
      testMatch: ['<rootDir>/test/guards/**/*.test.ts'],
    },
  ],
}
