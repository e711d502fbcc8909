import { describe, expect, test } from 'vitest';
import { transactionControlIn } from '../../shared/postgres/transaction-control.ts';

describe('a statement that ends or begins a transaction is recognised in any spelling (C115)', () => {
  test.each([
    ['COMMIT', 'COMMIT'],
    ['commit;', 'COMMIT'],
    ['; ;\tCommit', 'COMMIT'],
    ['COMMIT PREPARED $1', 'COMMIT'],
    ['End Work', 'END'],
    ['abort', 'ABORT'],
    ['ROLLBACK', 'ROLLBACK'],
    ['rollback work and chain', 'ROLLBACK'],
    ['rollback -- TO SAVEPOINT x', 'ROLLBACK'],
    ['/* a /* nested */ comment */ -- and\r\n beGin isolation level serializable', 'BEGIN'],
    ['START TRANSACTION', 'START'],
    [`PREPARE TRANSACTION 'x'`, 'PREPARE TRANSACTION'],
    [`prepare/**/transaction 'x'`, 'PREPARE TRANSACTION'],
    ['INSERT INTO t VALUES (1); COMMIT; BEGIN', 'COMMIT'],
    [`SELECT 'a;b' || "c;d" || E'\\';' || $$;$$ || $x$;$$;$x$; ROLLBACK`, 'ROLLBACK'],
    ['SELECT 1 /* ; */ -- ;\n ; /**/ commit', 'COMMIT'],
    ['SET search_path = x', 'SET'],
    ['set session authorization x', 'SET'],
    ['RESET role', 'RESET'],
  ])('the text %j says %s', (text, control) => {
    expect(transactionControlIn(text)).toBe(control);
  });
});

describe('a statement that neither ends nor begins a transaction passes (C115)', () => {
  test.each([
    'SELECT 1',
    'select 1;',
    '',
    ' ; ',
    'SAVEPOINT work',
    'RELEASE SAVEPOINT work',
    'ROLLBACK TO work',
    'ROLLBACK /* to here */ TO SAVEPOINT work',
    'rollback transaction to savepoint x',
    'ROLLBACK WORK -- back\n TO x',
    'PREPARE plan AS SELECT 1',
    'SET LOCAL search_path = tenant',
    'SET TRANSACTION READ ONLY',
    'set constraints all deferred',
    'PREPARE transaction_1 AS SELECT 1',
    'UPDATE t SET a = 1',
    `SELECT 'x'; -- COMMIT`,
    `SELECT ';COMMIT'`,
    `SELECT E'\\';COMMIT'`,
    'SELECT ";COMMIT"',
    'SELECT $$;COMMIT$$',
    'SELECT $tag$ $$;COMMIT;$$ $tag$',
    'SELECT /* ; COMMIT */ 1',
    'CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END',
    'SELECT $1; SELECT $2',
    '/* COMMIT',
  ])('the text %j passes', (text) => {
    expect(transactionControlIn(text)).toBeUndefined();
  });
});

test('a literal of many megabytes is read through', () => {
  const long = 'x'.repeat(20_000_000);
  for (const literal of [`'${long}'`, `E'${long}'`, `"${long}"`, `$$${long}$$`]) {
    expect(transactionControlIn(`SELECT ${literal}; COMMIT`)).toBe('COMMIT');
    expect(transactionControlIn(`SELECT ${literal};`)).toBeUndefined();
  }
});

test('doubled quotes and backslashes end no literal', () => {
  for (const text of [`SELECT 'a'';COMMIT'`, `SELECT E'a''\\';COMMIT'`, `SELECT "a"";COMMIT"`]) {
    expect(transactionControlIn(text)).toBeUndefined();
    expect(transactionControlIn(`${text}; COMMIT`)).toBe('COMMIT');
  }
});
