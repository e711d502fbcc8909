import type { Context } from 'aws-lambda';
import { deployedPurge } from '../../shared/service/index.ts';

const purge = deployedPurge();

/**
 * Run by the schedule; what the event says does not matter. Answers an object, since a scheduled
 * function that answers nothing is reported locally as a time-out.
 */
export const handler = (_event: unknown, context: Partial<Context>) => purge.run(context);
