/**
 * Which statement of a text would end the transaction, begin another, hand it over to somebody
 * (two-phase commit), or change the session behind it. Savepoints do none of this, ROLLBACK TO
 * included.
 *
 * Reads as Postgres' lexer does, as far as it must: comments (block comments nest), empty
 * statements, quoted texts. A text that it reads wrongly is still refused by the server,
 * which takes one statement at a time in the extended protocol.
 *
 * @returns that statement's first words in upper case; undefined when there is none.
 */
export function transactionControlIn(text: string): string | undefined {
  for (let at = startOfStatement(text, 0); at < text.length; ) {
    const [first = '', second = '', third = ''] = wordsAt(text, at);
    if (isControl(first, second, third)) return first === 'PREPARE' ? `${first} ${second}` : first;
    // The body of a function may be SQL (BEGIN ATOMIC … END), and holds semicolons of its own.
    if (first === 'CREATE') return undefined;
    at = startOfStatement(text, endOfStatement(text, at));
  }
  return undefined;
}

const ENDING_OR_BEGINNING = new Set(['BEGIN', 'START', 'COMMIT', 'END', 'ABORT', 'ROLLBACK']);

/** What SET says of this transaction alone. */
const OF_TRANSACTION = new Set(['LOCAL', 'TRANSACTION', 'CONSTRAINTS']);

function isControl(first: string, second: string, third: string): boolean {
  if (first === 'PREPARE') return second === 'TRANSACTION';
  if (first === 'RESET') return true;
  if (first === 'SET') return !OF_TRANSACTION.has(second);
  if (!ENDING_OR_BEGINNING.has(first)) return false;
  const isNoise = second === 'WORK' || second === 'TRANSACTION';
  return !(first === 'ROLLBACK' && (isNoise ? third : second) === 'TO');
}

/** Behind white space, comments and empty statements. */
function startOfStatement(text: string, from: number): number {
  let at = skipBlank(text, from);
  while (text[at] === ';') at = skipBlank(text, at + 1);
  return at;
}

const WORD = /[a-z_\u0080-\uffff][\w$\u0080-\uffff]*/iy;

/** The first three words, in upper case; fewer where something else than a word comes first. */
function wordsAt(text: string, from: number): string[] {
  const words: string[] = [];
  for (let at = from; words.length < 3; at = skipBlank(text, WORD.lastIndex)) {
    WORD.lastIndex = at;
    const word = WORD.exec(text)?.[0];
    if (word === undefined) break;
    words.push(word.toUpperCase());
  }
  return words;
}

/**
 * A quoted text: with backslashes, standard, an identifier, or dollar-quoted. A doubled quote is the
 * end of one and the beginning of the next. Without alternatives in a loop, which would overflow
 * the stack on a literal of some megabytes.
 */
const QUOTED =
  /\be'[^'\\]*(?:(?:\\[\s\S]|'')[^'\\]*)*'|'[^']*'|"[^"]*"|\$([a-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$[\s\S]*?\$\1\$/iy;

/** The semicolon that ends the statement, or the end of the text. */
function endOfStatement(text: string, from: number): number {
  if (!text.includes(';', from)) return text.length;
  for (let at = from; at < text.length; ) {
    if (text[at] === ';') return at;
    QUOTED.lastIndex = at;
    const next = QUOTED.test(text) ? QUOTED.lastIndex : skipBlank(text, at);
    at = next > at ? next : at + 1;
  }
  return text.length;
}

const BLANK = /\s|--[^\n\r]*/y;

function skipBlank(text: string, from: number): number {
  let at = from;
  for (;;) {
    BLANK.lastIndex = at;
    if (BLANK.test(text)) at = BLANK.lastIndex;
    else if (text.startsWith('/*', at)) at = endOfComment(text, at);
    else return at;
  }
}

const COMMENT_EDGE = /\/\*|\*\//g;

function endOfComment(text: string, from: number): number {
  COMMENT_EDGE.lastIndex = from;
  let depth = 0;
  for (let edge = COMMENT_EDGE.exec(text); edge; edge = COMMENT_EDGE.exec(text)) {
    depth += edge[0] === '/*' ? 1 : -1;
    if (depth === 0) return COMMENT_EDGE.lastIndex;
  }
  return text.length;
}
