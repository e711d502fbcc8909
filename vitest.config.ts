import { defineConfig } from 'vitest/config';

/**
 * `npm test`, and with `--mode long` (`npm run test:long`) the long forms: the same behaviours with
 * a whole service or a server of their own for each test.
 */
export default defineConfig(({ mode }) => ({
  test: {
    include: [mode === 'long' ? 'test/**/*.long.ts' : 'test/**/*.test.ts'],
    globalSetup: ['test/support/global-setup.ts'],
    setupFiles: ['test/support/each-file.ts'],
    pool: 'forks',
    // Most of the time is spent waiting for servers, so more files at once than cores.
    maxWorkers: 4,
    // One process serves one file after the other, so that modules load once: what a file changes
    // of its process (environment, clock, spies) it puts back.
    isolate: false,
    // Only a hang takes so long: real servers share the machine with the tests, and both may share
    // it with others. Longer than what a test waits for at most (HANG_MS), so that this is told.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    sequence: { shuffle: true },
    reporters: ['default'],
  },
}));
