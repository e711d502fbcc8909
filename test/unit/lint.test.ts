/**
 * Goal: the lint rules of tools/ refuse what they are about, and nothing else. Method: Biome itself,
 * with this repository's settings, on a file that is planted in a folder of its own.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';

const ROOT = join(import.meta.dirname, '../..');
const folder = mkdtempSync(join(tmpdir(), 'backstop-lint-'));
beforeAll(() => {
  for (const name of ['biome.json', 'tools']) {
    cpSync(join(ROOT, name), join(folder, name), { recursive: true });
  }
});
afterAll(() => rmSync(folder, { recursive: true }));

/** The lines of the file at this path that a rule complains of, by number. */
function complaints(path: string, lines: readonly string[]): number[] {
  const file = join(folder, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, lines.map((line) => `${line}\n`).join(''));
  const args = ['lint', '--reporter=github', path];
  const biome = join(ROOT, 'node_modules/.bin/biome');
  let told = '';
  try {
    told = execFileSync(biome, args, { cwd: folder, encoding: 'utf8', stdio: 'pipe' });
  } catch (error) {
    told = (error as { stdout: string }).stdout;
  }
  rmSync(file);
  const found = [...told.matchAll(/title=plugin.*?,line=(\d+)/g)].map(([, line]) => Number(line));
  return found.toSorted((a, b) => a - b);
}

test('a number from 400 to 599 is refused where it is a status, and nowhere else', () => {
  const statuses = [
    'export const a = { statusCode: 404 };',
    "export const b = { 'status': 503, body: '' };",
    'export const c = (isDown: boolean) => ({ statusCode: isDown ? 503 : 200 });',
    'export const d = (answer: { statusCode: number }) => answer.statusCode === 409;',
    'export const e = (status: number) => status >= 500;',
    'export const f = (status: number) => 404 === status;',
    'export const g = (status: number) => { switch (status) { case 404: return true; } };',
    'export const NOT_FOUND_STATUS = 404;',
    'export const h = json(404, {});',
  ];
  const numbers = [
    'export const PAUSE_MS = 500;',
    'export const i = { waitMs: 500, bytesMax: 404 };',
    'export const j = (waitedMs: number) => waitedMs > 500;',
    'export const k = { statusCode: 200, body: "404" };',
    'export const l = json(200, { coins: 404 });',
  ];
  const lines = [...statuses, ...numbers];
  expect(complaints('shared/redis/planted.ts', lines)).toEqual(statuses.map((_, n) => n + 1));
  expect(complaints('functions/planted.ts', lines)).toEqual(statuses.map((_, n) => n + 1));
  expect(complaints('shared/http/problems.ts', lines)).toEqual([]);
});

test('the clock is read in one file', () => {
  const lines = ['export const a = Date.now();', 'export const b = performance.now();'];
  expect(complaints('shared/redis/planted.ts', lines)).toEqual([1, 2]);
  expect(complaints('shared/core/clock.ts', lines)).toEqual([]);
});
