/** What every function is told, and what those that answer requests are. */
import { ConfigError } from '../../core/config-error.ts';
import { DEFAULT_PROBLEM_BASE_URL } from '../../http/problems.ts';
import {
  choice,
  component,
  judged,
  number,
  parsed,
  perFunction,
  refused,
  type Settings,
  text,
  withDefault,
} from './setting.ts';

/** The longest that a request may take: the HTTP API gives up after 30 s. */
export const REQUEST_TIMEOUT_MS = 28_000;

export const SERVICE = component('Every function', {
  stage: withDefault(
    parsed(
      'BACKSTOP_STAGE',
      'text',
      'A dimension of every metric, so that two stages of one account are told apart: 1 to 64 letters, digits, - and _.',
      (text) => {
        if (/^[\w-]{1,64}$/.test(text)) return text;
        const why = 'it must be 1 to 64 letters, digits, - and _, such as "prod"';
        throw refused('BACKSTOP_STAGE', text, why);
      },
    ),
    'local',
  ),
});

/** A row of three tables: what must fit into it is refused beside each. */
export const ANSWER_MARGIN_MS = number(
  'BACKSTOP_ANSWER_MARGIN_MS',
  1000,
  'ms',
  "What is left of the function's time when COMMIT is sent: for its answer, for finding out what became of it, and for publishing.",
);

export const REQUESTS = judged(
  component('Requests', {
    keyMode: perFunction('BACKSTOP_KEY_MODE', (name) =>
      choice(
        name,
        ['required', 'optional'],
        'Whether a request without an Idempotency-Key is refused, or counted and let through.',
      ),
    ),
    cacheMode: choice(
      'BACKSTOP_CACHE_MODE',
      ['first', 'parallel'],
      'Redis first and the store only if it has no answer, or both at once: a round trip less for a first request, a rolled back transaction more for each replay.',
    ),
    issuerAliases: withDefault(
      parsed(
        'BACKSTOP_ISSUER_ALIASES',
        '`alias=issuer,…`',
        "Where tokens of several issuers are accepted: the alias becomes part of each principal of that issuer's, so it never changes.",
        parseAliases,
      ),
      {},
      'none',
    ),
    problemBaseUrl: withDefault(
      text('BACKSTOP_PROBLEM_BASE_URL', "What a problem's `type` begins with."),
      DEFAULT_PROBLEM_BASE_URL,
    ),
    answerMarginMs: ANSWER_MARGIN_MS,
    bodyBytesMax: number(
      'BACKSTOP_BODY_BYTES_MAX',
      262_144,
      'bytes',
      'A larger body is refused before anything reads it.',
    ),
    storedBodyBytesMax: number(
      'BACKSTOP_STORED_BODY_BYTES_MAX',
      262_144,
      'bytes',
      'The body of a larger answer is not kept: its replay is ALREADY_EXISTS.',
    ),
  }),
  (requests) => {
    const { answerMarginMs } = requests;
    if (answerMarginMs < 800 || answerMarginMs >= REQUEST_TIMEOUT_MS) {
      throw new ConfigError(
        `BACKSTOP_ANSWER_MARGIN_MS is ${answerMarginMs}: finding out what became of a lost COMMIT and publishing take up to 800, and it must stay below the request's ${REQUEST_TIMEOUT_MS}. Set it to 1000.`,
      );
    }
    return requests;
  },
);

export type RequestSettings = Settings<typeof REQUESTS>;

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
