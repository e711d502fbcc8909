import { plainHandler } from './plain.ts';

export const handler = plainHandler();
