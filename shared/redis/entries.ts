import type { CacheLookup, Kept, Mutation } from '../core/contract.ts';

/** Goes up with every change of the format; entries of other versions are not read. */
const ENTRY_VERSION = 1;

interface Pending {
  readonly v: typeof ENTRY_VERSION;
  readonly state: 'pending';
  readonly fingerprint: string;
  readonly token: string;
  readonly deadlineMs: number;
}

interface Completed {
  readonly v: typeof ENTRY_VERSION;
  readonly state: 'completed';
  readonly fingerprint: string;
  readonly response: Kept;
  readonly expiresAtMs: number;
}

/** The same mutation always gives the same text: release compares it whole. */
export function encodePending({ fingerprint, token, deadlineMs }: Mutation): string {
  const entry: Pending = { v: ENTRY_VERSION, state: 'pending', fingerprint, token, deadlineMs };
  return JSON.stringify(entry);
}

export function encodeCompleted(fingerprint: string, kept: Kept, expiresAtMs: number): string {
  const entry: Completed = {
    v: ENTRY_VERSION,
    state: 'completed',
    fingerprint,
    response: kept,
    expiresAtMs,
  };
  return JSON.stringify(entry);
}

/** @returns undefined for what cannot be read, or is of another version: an L1 miss. */
export function decode(text: string): CacheLookup | undefined {
  let entry: unknown;
  try {
    entry = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (isPending(entry)) {
    return { kind: 'pending', fingerprint: entry.fingerprint, deadlineMs: entry.deadlineMs };
  }
  if (isCompleted(entry)) {
    const { fingerprint, response: kept, expiresAtMs } = entry;
    return { kind: 'completed', fingerprint, kept, expiresAtMs };
  }
  return undefined;
}

function isEntry(entry: unknown): entry is { state: unknown; fingerprint: string } {
  const { v, fingerprint } = (entry ?? {}) as Record<string, unknown>;
  return v === ENTRY_VERSION && typeof fingerprint === 'string';
}

function isPending(entry: unknown): entry is Pending {
  return (
    isEntry(entry) &&
    entry.state === 'pending' &&
    'deadlineMs' in entry &&
    Number.isFinite(entry.deadlineMs)
  );
}

function isCompleted(entry: unknown): entry is Completed {
  if (!isEntry(entry) || entry.state !== 'completed') return false;
  return 'response' in entry && 'expiresAtMs' in entry && Number.isFinite(entry.expiresAtMs);
}
