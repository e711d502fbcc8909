/** docs/settings.md is what the tables say; `npm run settings` writes it anew. */
import { expect, test } from 'vitest';
import type { AnyComponent, Setting } from '../../shared/service/settings/component.ts';
import { COMPONENTS, ROOTS } from '../../shared/service/settings.ts';

const READERS: Record<keyof typeof ROOTS, string> = {
  postgres: 'a function on Postgres (`deployedService`)',
  dynamodb: 'a function on DynamoDB (`deployedDynamoService`)',
  purge: 'the purge, scheduled and as a command',
  migration: 'the migrations at deployment',
};

const cells = (...texts: string[]) => `| ${texts.join(' | ')} |`;

function line({ name, isPerFunction, type, unit = '', unset, about }: Setting<unknown>): string {
  const names = isPerFunction ? `\`${name}\`, \`${name}_<FUNCTION>\`` : `\`${name}\``;
  return cells(names, type, unset, unit, about);
}

function section({ title, rows }: AnyComponent): string {
  const head = [
    cells('setting', 'type', 'default', 'unit', 'what it decides'),
    '|---|---|---|---|---|',
  ];
  return [`## ${title}`, '', ...head, ...Object.values(rows).map(line), ''].join('\n');
}

function document(): string {
  const readers = Object.entries(ROOTS).map(([root, parts]) => {
    const titles = Object.values<AnyComponent>(parts).map(({ title }) => title);
    return cells(READERS[root as keyof typeof ROOTS], titles.join(', '));
  });
  return `# Settings

Environment variables, checked when a function starts: a value that cannot be, or that does not fit
another, is refused with what to set, and no refusal shows what may be a password. An empty variable
is an absent one. A \`BACKSTOP_*\` that nothing below reads is refused too. Written by
\`npm run settings\` from the tables in [shared/service/settings](../shared/service/settings).

| reader | what it reads |
|---|---|
${readers.join('\n')}

\`<FUNCTION>\` is the name of a route in capitals, with _ for -: \`BACKSTOP_KEY_MODE_SPEND_COINS\` is about
\`spend-coins\` alone. The level of the log is Powertools' own \`POWERTOOLS_LOG_LEVEL\`.

${[...COMPONENTS].map(section).join('\n')}`;
}

test('docs/settings.md is what the tables of settings generate', async () => {
  await expect(document()).toMatchFileSnapshot('../../docs/settings.md');
});
