import { defineProblems } from '../shared/index.ts';

/** What this service refuses with, beside the library's own codes. */
export const { INSUFFICIENT_COINS } = defineProblems({
  INSUFFICIENT_COINS: { status: 402, title: 'Not enough coins', retryable: false },
});
