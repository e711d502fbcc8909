import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    setupFiles: ['test/support/each-file.ts'],
    pool: 'forks',
    // Most of the time is spent waiting for servers, so more files at once than cores.
    maxWorkers: 3,
    // Real servers share the machine with the tests; a limit is there for what hangs.
    testTimeout: 30_000,
    hookTimeout: 60_000,
    sequence: { shuffle: true },
    reporters: ['default'],
  },
});
