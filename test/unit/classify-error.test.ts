import { readdirSync, readFileSync } from 'node:fs';
import { DatabaseError } from 'pg';
import { describe, expect, test } from 'vitest';
import { isDefiniteFailure, meaningOf } from '../../shared/postgres/classify-error.ts';

function databaseError(code: string | undefined, severity = 'ERROR'): DatabaseError {
  return Object.assign(new DatabaseError('message', 1, 'error'), { code, severity });
}

describe('the meaning of a code', () => {
  test.each([
    ['IDM01', 'key-used'],
    ['IDM02', 'deadline'],
    ['IDM03', 'conflict'],
    ['55P03', 'lock-timeout'],
    ['57014', 'lock-timeout'],
    ['40001', 'conflict'],
    ['40P01', 'conflict'],
    ['25006', 'connection'],
    ['25P03', 'connection'],
    ['53300', 'connection'],
    ['57P01', 'connection'],
    ['57P02', 'connection'],
    ['57P03', 'connection'],
    ['57P05', 'connection'],
    ['08000', 'connection'],
    ['08003', 'connection'],
    ['08006', 'connection'],
    ['08P01', 'permanent'],
    ['23505', 'permanent'],
    ['23514', 'permanent'],
    ['22003', 'permanent'],
    ['25P02', 'permanent'],
    ['42P01', 'permanent'],
    ['42501', 'permanent'],
    ['P0001', 'permanent'],
    [undefined, 'permanent'],
  ])('the code %s means %s', (code, meaning) => {
    expect(meaningOf(databaseError(code))).toBe(meaning);
  });

  test('08P01 with FATAL is a pooler that has no server for us, and no mistake of the statement', () => {
    expect(meaningOf(databaseError('08P01', 'FATAL'))).toBe('connection');
  });

  test('a second copy of the class, as a bundle may have, is known by its members', () => {
    const copy = Object.assign(new Error('x'), { code: 'IDM01', severity: 'ERROR', routine: 'y' });
    expect(meaningOf(copy)).toBe('key-used');
    expect(isDefiniteFailure(copy)).toBe(true);
  });
});

describe('an error of a lost connection', () => {
  test.each([
    'ECONNREFUSED',
    'ECONNRESET',
    'ECONNABORTED',
    'EPIPE',
    'ETIMEDOUT',
    'EHOSTUNREACH',
    'ENETUNREACH',
    'ENOTFOUND',
    'EAI_AGAIN',
  ])('the code %s is a lost connection', (code) => {
    expect(meaningOf(Object.assign(new Error('socket'), { code }))).toBe('connection');
  });

  test.each([
    'Connection terminated',
    'Connection terminated unexpectedly',
    'Connection terminated due to connection timeout',
    'Client has encountered a connection error and is not queryable',
    'Client was closed and is not queryable',
    'Query read timeout',
    'timeout exceeded when trying to connect',
    'timeout expired',
  ])('the message "%s" is a lost connection', (message) => {
    expect(meaningOf(new Error(message))).toBe('connection');
  });
});

test.each([
  ['an error of the work', new Error('Not enough'), undefined],
  ['one that quotes a loss', new Error('I saw: Connection terminated'), undefined],
  ['a file that is missing', Object.assign(new Error('x'), { code: 'ENOENT' }), undefined],
  ['an object with a code', { code: '40001' }, undefined],
  ['a string', '40001', undefined],
  ['null', null, undefined],
  ['undefined', undefined, undefined],
])('%s is no error of the database', (_, error, meaning) => {
  expect(meaningOf(error)).toBe(meaning);
});

describe('a definite failure', () => {
  test('an ERROR of the server is a definite failure', () => {
    expect(isDefiniteFailure(databaseError('40001'))).toBe(true);
  });

  test.each(['FATAL', 'PANIC', '', undefined])('severity %s is no definite failure', (severity) => {
    const error = Object.assign(databaseError('57P01'), { severity });
    expect(isDefiniteFailure(error)).toBe(false);
  });

  test('a lost connection is no definite failure', () => {
    const error = Object.assign(new Error('x'), { code: 'ECONNRESET', severity: 'ERROR' });
    expect(isDefiniteFailure(error)).toBe(false);
  });
});

describe('the errors of the migrations', () => {
  const directory = new URL('../../shared/postgres/migrations/', import.meta.url);
  const sql = readdirSync(directory)
    .map((name) => readFileSync(new URL(name, directory), 'utf8'))
    .join('\n');

  test('the migrations raise no SQLSTATE that has no meaning of its own', () => {
    const raised = [...sql.matchAll(/\bERRCODE\s*=\s*'([^']+)'/gi)].map(([, code]) => code);
    expect(raised).toEqual(expect.arrayContaining(['IDM01', 'IDM02']));
    const permanent = raised.filter((code) => meaningOf(databaseError(code)) === 'permanent');
    expect(permanent).toEqual([]);
  });

  test('the migrations raise by ERRCODE, and in no other spelling that this test would miss', () => {
    expect(sql).not.toMatch(/RAISE\s+(?:EXCEPTION\s+)?SQLSTATE/i);
    expect([...sql.matchAll(/\bERRCODE\b/gi)]).toHaveLength(
      [...sql.matchAll(/\bERRCODE\s*=\s*'[^']{5}'/gi)].length,
    );
  });
});
