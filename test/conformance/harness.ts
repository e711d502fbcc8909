import type { Cache, HttpResponse, Problem, Store } from '../../shared/index.ts';
import type { HttpWork } from '../../shared/lambda/index.ts';

/** What differs by store, all of it. Everything else in the suite holds for each. */
export interface Traits {
  /** Does a replay come back when Redis has forgotten it? Else the answer is ALREADY_EXISTS. */
  readonly replaysWithoutRedis: boolean;
  /** Are two routes two requests, or is the key used up on all of them? */
  readonly identity: 'key' | 'endpoint and key';
  /**
   * What a duplicate of a running request meets where Redis does not stop it: it waits for the
   * owner's transaction, it is rejected, or it runs as well and one of the two commits.
   */
  readonly duplicateInFlight: 'waits' | 'rejected' | 'races';
}

export type RedisMode = 'on' | 'off' | 'dies';

/** A store that is open, with all that the suite needs to judge it from outside. */
export interface OpenStore<Handle> {
  readonly store: Store<Handle>;
  readonly cache: Cache;
  /** A work that makes one effect for `principal`, and then does as `respond` says. */
  work(
    principal: string,
    respond: () => Promise<HttpResponse | Problem> | HttpResponse | Problem,
  ): HttpWork<Handle>;
  effects(principal: string): Promise<number>;
  /** Claims that stand there, of whatever state. */
  claims(principal: string): Promise<number>;
  /** Kills Redis, in mode `dies`; else nothing. */
  killRedis(): Promise<void>;
  /** Waits until a duplicate is seen waiting for the claim's owner, or running beside it. */
  duplicateArrived(): Promise<unknown>;
  /** Nobody can reach the store until `mendStore`. */
  breakStore(): Promise<void>;
  mendStore(): Promise<void>;
  close(): Promise<void>;
}

export interface StoreHarness<Handle> {
  readonly name: string;
  readonly traits: Traits;
  open(redis: RedisMode): Promise<OpenStore<Handle>>;
}
