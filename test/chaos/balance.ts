/** What the clients were told, held against what the servers kept. */
import type { Answer } from '../support/requests.ts';

export interface KeyHistory {
  readonly key: string;
  /** Whether the work means to refuse (402), or throws the first time. */
  readonly kind: 'effect' | 'refusal' | 'throws-first';
  /** In the order in which they came; the last was sent when all faults were over. */
  readonly answers: readonly Answer[];
}

/** The nonces of the runs of the work whose effects are there. */
export type Effects = (key: string) => readonly string[];

/** @returns what broke the promise, a sentence each. */
export function violationsOf(histories: readonly KeyHistory[], effectsOf: Effects): string[] {
  return histories.flatMap((history) =>
    violationsOfKey(history, effectsOf(history.key)).map(
      (what) => `${history.key} (${history.kind}): ${what}; ${told(history)}`,
    ),
  );
}

function violationsOfKey({ kind, answers }: KeyHistory, effects: readonly string[]): string[] {
  const done = answers.filter(({ status }) => status === 200 || status === 402);
  const fresh = done.filter(({ headers }) => headers['idempotency-replayed'] === undefined);
  const bodies = new Set(done.map(({ text }) => text));
  const codes = new Set(answers.map(({ code }) => code));
  const last = answers.at(-1);
  const isUsedUp = codes.has('ALREADY_EXISTS');
  const rules: [boolean, string][] = [
    [effects.length <= 1, `${effects.length} effects`],
    [kind !== 'refusal' || effects.length === 0, 'a refusal left an effect'],
    [
      kind === 'refusal' || (done.length === 0 && !isUsedUp) || effects.length === 1,
      'acknowledged, and there is no effect',
    ],
    [fresh.length <= 1, `${fresh.length} fresh answers`],
    [bodies.size <= 1, 'replays differ from the first answer'],
    [
      kind === 'refusal' || done.every(({ text }) => text === effects[0]),
      'the answer is of a run whose effect is not there',
    ],
    [
      answers.every(
        ({ status, code }) => status < 500 || isRetryable(code) || isExpected(kind, code),
      ),
      'a failure of ours',
    ],
    [
      last !== undefined && (done.includes(last) || last.code === 'ALREADY_EXISTS'),
      'never settled',
    ],
  ];
  return rules.flatMap(([holds, what]) => (holds ? [] : [what]));
}

export function isRetryable(code: string | undefined): boolean {
  return ['ABORTED', 'CONTENTION', 'UNAVAILABLE', 'OUTCOME_UNKNOWN'].includes(String(code));
}

function isExpected(kind: KeyHistory['kind'], code: string | undefined): boolean {
  return kind === 'throws-first' && code === 'INTERNAL';
}

function told({ answers }: KeyHistory): string {
  return answers
    .map(({ status, code, headers, text }) => {
      const replayed = headers['idempotency-replayed'] ? ' replayed' : '';
      return `${status}${replayed} ${code ?? text}`;
    })
    .join(', ');
}
