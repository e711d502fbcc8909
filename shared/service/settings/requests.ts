/** What every function is told, and what those that answer requests are. */
import { ConfigError } from '../../core/config-error.ts';
import { DEFAULT_PROBLEM_BASE_URL } from '../../http/problems.ts';
import { component, judged, type Settings } from './component.ts';
import * as row from './row.ts';

/** The longest that a request may take: the HTTP API gives up after 30 s. */
export const REQUEST_TIMEOUT_MS = 28_000;

// biome-ignore format: a table, with a row on each line
export const SERVICE = component('Every function', {
  stage: row.withDefault(row.parsed('BACKSTOP_STAGE', 'text', 'A dimension of every metric, so that two stages of one account are told apart.', checkStage), 'local'),
});

/** What fits into it is judged where it is read: the lease of a record, the commands of Redis. */
export const ANSWER_MARGIN_MS = row.ms(
  'BACKSTOP_ANSWER_MARGIN_MS',
  1000,
  "What is left of the function's time when COMMIT is sent: for its answer, for finding out what became of it, and for publishing.",
);

// biome-ignore format: a table, with a row on each line
const REQUESTS_TABLE = component('Requests', {
  keyMode: row.perFunction('BACKSTOP_KEY_MODE', (name) => row.choice(name, ['required', 'optional'], 'Whether a request without an Idempotency-Key is refused, or counted and let through.')),
  cacheMode: row.choice('BACKSTOP_CACHE_MODE', ['first', 'parallel'], 'Redis first, and the store only if it has no answer; or both at once: a round trip less for a first request, a transaction more for each replay.'),
  issuerAliases: row.withDefault(row.parsed('BACKSTOP_ISSUER_ALIASES', '`alias=issuer,…`', 'Where tokens of several issuers are accepted: the alias becomes part of every principal, so it never changes.', parseAliases), {}, 'none'),
  problemBaseUrl: row.withDefault(row.text('BACKSTOP_PROBLEM_BASE_URL', "What a problem's `type` begins with."), DEFAULT_PROBLEM_BASE_URL),
  answerMarginMs: ANSWER_MARGIN_MS,
  bodyBytesMax: row.count('BACKSTOP_BODY_BYTES_MAX', 262_144, 'bytes', 'A larger body is refused before anything reads it.'),
  storedBodyBytesMax: row.count('BACKSTOP_STORED_BODY_BYTES_MAX', 262_144, 'bytes', 'The body of a larger answer is not kept: its replay is ALREADY_EXISTS.'),
});

export const REQUESTS = judged(REQUESTS_TABLE, (requests) => {
  const { answerMarginMs } = requests;
  if (answerMarginMs >= 800 && answerMarginMs < REQUEST_TIMEOUT_MS) return requests;
  throw new ConfigError(
    `BACKSTOP_ANSWER_MARGIN_MS is ${answerMarginMs}: finding out what became of a lost COMMIT and publishing take up to 800, and it must stay below the request's ${REQUEST_TIMEOUT_MS}. Set it to 1000.`,
  );
});

export type RequestSettings = Settings<typeof REQUESTS>;

function checkStage(text: string, name: string): string {
  if (/^[\w-]{1,64}$/.test(text)) return text;
  throw row.refused(name, text, 'it must be 1 to 64 letters, digits, - and _, such as "prod"');
}

/** `alias=issuer` pairs, separated by commas; from issuer to alias. */
function parseAliases(text: string): Readonly<Record<string, string>> {
  const aliases = new Map<string, string>();
  for (const pair of text.split(',').map((pair) => pair.trim())) {
    const [, alias, issuer] = /^([\w-]+)=(.+)$/.exec(pair) ?? [];
    if (alias === undefined || issuer === undefined) {
      throw new ConfigError(
        `BACKSTOP_ISSUER_ALIASES has "${pair}": write alias=issuer, the alias in letters, digits, - and _, since it becomes part of every principal`,
      );
    }
    if (aliases.has(issuer) || [...aliases.values()].includes(alias)) {
      throw new ConfigError(
        `BACKSTOP_ISSUER_ALIASES repeats the alias or the issuer of "${pair}": the principals of two issuers must not be mixed up. Write alias=issuer once for each issuer.`,
      );
    }
    aliases.set(issuer, alias);
  }
  return Object.fromEntries(aliases);
}
