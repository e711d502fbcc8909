/**
 * The URLs of servers, judged by their grammar when they are given: a driver would take a
 * password that holds a `#` or a `/` apart, and look for a host of that name at each request.
 * No message repeats any of it: it may hold a password.
 */
import { ConfigError } from './config-error.ts';

/** @throws ConfigError that says what is wrong with the URL called `name`, and shows none of it. */
export function checkPostgresUrl(name: string, text: string): void {
  const example = 'postgres://user@host:5432/database';
  check(name, text, { schemes: ['postgres', 'postgresql'], example });
}

/** @throws ConfigError likewise. */
export function checkRedisUrl(name: string, text: string): void {
  const example = 'redis://host:6379, or with TLS rediss://user@host:6379';
  const { pathname } = check(name, text, { schemes: ['redis', 'rediss'], example });
  if (!/^\/?\d*$/.test(pathname)) {
    throw new ConfigError(
      `${name} has a path that is no number: it is the number of a database of that Redis. Leave it out. Set it to ${example}.`,
    );
  }
}

/** @throws ConfigError likewise. */
export function checkHttpUrl(name: string, text: string): void {
  check(name, text, { schemes: ['http', 'https'], example: 'http://127.0.0.1:8000' });
}

interface Grammar {
  readonly schemes: readonly string[];
  readonly example: string;
}

const ESCAPES =
  'In a user or a password write # as %23, / as %2F, ? as %3F, @ as %40 and % as %25 (encodeURIComponent does it)';

function check(name: string, text: string, { schemes, example }: Grammar): URL {
  const refuse = (what: string): never => {
    throw new ConfigError(`${name} ${what}. Set it to ${example}.`);
  };
  const [, scheme, authority = '', rest = ''] = /^([^:/?#]+):\/\/([^/?#]*)(.*)$/s.exec(text) ?? [];
  if (scheme === undefined || /\s/.test(text)) {
    return refuse('is no URL: it lacks a scheme and ://, or has white space in it');
  }
  if (!schemes.includes(scheme.toLowerCase())) {
    return refuse(`is a URL of another scheme: it must begin with ${schemes.join(':// or ')}://`);
  }
  if (rest.includes('#') || rest.includes('@') || authority.split('@').length > 2) {
    return refuse(
      `has a # or an @ where none can be, or a password that is cut in two. ${ESCAPES}`,
    );
  }
  if (!canDecode(authority + rest)) {
    return refuse(`has a % that is no escape of a character. ${ESCAPES}`);
  }
  const [, host = '', port] = /^(?:.*@)?(\[[^\]]*\]|[^:]*)(?::(.*))?$/.exec(authority) ?? [];
  // A Unix socket of Postgres is named in the query.
  if (host === '' && !/[?&]host=./.test(rest)) return refuse('names no host');
  if (port && !(/^\d+$/.test(port) && Number(port) >= 1 && Number(port) <= 65_535)) {
    return refuse(
      `has a port that is no number from 1 to 65535, or an unescaped password. ${ESCAPES}`,
    );
  }
  if (!URL.canParse(text)) return refuse('is no URL: its host or its port cannot be');
  return new URL(text);
}

function canDecode(text: string): boolean {
  try {
    decodeURIComponent(text);
    return true;
  } catch {
    return false;
  }
}
