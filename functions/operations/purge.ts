import type { Context } from 'aws-lambda';
import { deployedPurge } from '../../shared/service/index.ts';

const purge = deployedPurge();

/**
 * Run by the schedule, with `{ worker, workers }`, `{}` or any envelope around it.
 * Answers an object, since a scheduled function that answers nothing is reported
 * locally as a time-out.
 */
export const handler = (event: unknown, context: Partial<Context>) => purge.run(context, event);
