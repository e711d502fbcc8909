/**
 * Each alarm, evaluated on what the code really emits (or, for AWS' own metrics, on samples
 * with the dimensions that AWS documents): it goes off when it must, and stays quiet otherwise.
 */
import { beforeAll, expect, test } from 'vitest';
import { cacheFailure, emittedBy, purgeRun, requestThatEnds, steps } from './support/emitted.ts';
import { type Alarm, isInAlarm, type Sample } from './support/metrics.ts';
import { packagedTemplate } from './support/package-service.ts';
import { ofType, propertiesOf, type Template } from './support/template.ts';

let template: Template;
beforeAll(async () => {
  [template] = await Promise.all([packagedTemplate('own'), packagedTemplate('existing')]);
});

const alarm = (id: string) => propertiesOf<Alarm>(template, id);

function times<T>(count: number, value: T): T[] {
  return Array.from({ length: count }, () => value);
}

function aws(namespace: string, name: string, dimension: string, of: string) {
  return (value: number): Sample[] => [{ namespace, name, dimensions: { [dimension]: of }, value }];
}

test('OldestExpiredAgeAlarm goes off when the purge is late for five minutes, or silent', async () => {
  const late = await emittedBy(() => purgeRun({ oldestExpiredAgeSeconds: 901 }));
  const fine = await emittedBy(() => purgeRun({ oldestExpiredAgeSeconds: 0 }));
  const unseen = await emittedBy(() => purgeRun({ oldestExpiredAgeSeconds: null }));
  const id = 'OldestExpiredAgeAlarm';
  expect(isInAlarm(alarm(id), times(5, late))).toBe(true);
  expect(isInAlarm(alarm(id), times(5, []))).toBe(true);
  expect(isInAlarm(alarm(id), times(5, unseen))).toBe(true);
  expect(isInAlarm(alarm(id), times(5, fine))).toBe(false);
  expect(isInAlarm(alarm(id), [...times(4, late), fine])).toBe(false);
  // The worse of two workers counts, and not their sum.
  const halfAsLate = await emittedBy(() => purgeRun({ oldestExpiredAgeSeconds: 500 }));
  expect(isInAlarm(alarm(id), times(5, [...halfAsLate, ...halfAsLate]))).toBe(false);
  expect(isInAlarm(alarm(id), times(5, [...fine, ...late]))).toBe(true);
});

test('PurgeFailuresAlarm goes off when a sweep fails in three of five minutes', async () => {
  const failing = await emittedBy(() => purgeRun({ failed: ['markers'] }));
  const fine = await emittedBy(() => purgeRun());
  const id = 'PurgeFailuresAlarm';
  expect(isInAlarm(alarm(id), [fine, failing, fine, failing, failing])).toBe(true);
  expect(isInAlarm(alarm(id), [fine, failing, fine, fine, failing])).toBe(false);
  expect(isInAlarm(alarm(id), times(5, []))).toBe(false);
});

test('PurgeErrorsAlarm goes off when its function ends in errors in three of five minutes', () => {
  const errors = aws('AWS/Lambda', 'Errors', 'FunctionName', 'PurgeLambdaFunction');
  const id = 'PurgeErrorsAlarm';
  expect(isInAlarm(alarm(id), [errors(0), errors(1), errors(1), errors(0), errors(2)])).toBe(true);
  expect(isInAlarm(alarm(id), [errors(0), errors(1), errors(1), errors(0), errors(0)])).toBe(false);
});

test('PurgeDeadLettersAlarm goes off at one message', () => {
  const letters = aws(
    'AWS/SQS',
    'ApproximateNumberOfMessagesVisible',
    'QueueName',
    'PurgeDeadLetters.QueueName',
  );
  expect(isInAlarm(alarm('PurgeDeadLettersAlarm'), [letters(1)])).toBe(true);
  expect(isInAlarm(alarm('PurgeDeadLettersAlarm'), [letters(0)])).toBe(false);
  expect(isInAlarm(alarm('PurgeDeadLettersAlarm'), [[]])).toBe(false);
});

test('ProxyPinningAlarm goes off when connections are pinned for five minutes, and not at a single one', () => {
  const pinned = aws(
    'AWS/RDS',
    'DatabaseConnectionsCurrentlySessionPinned',
    'ProxyName',
    'DatabaseProxy',
  );
  expect(isInAlarm(alarm('ProxyPinningAlarm'), times(5, pinned(1)))).toBe(true);
  expect(isInAlarm(alarm('ProxyPinningAlarm'), [...times(4, pinned(1)), pinned(0)])).toBe(false);
});

test('ApiErrorsAlarm goes off at more than five 5xx in three of five minutes', () => {
  const errors = aws('AWS/ApiGateway', '5xx', 'ApiId', 'HttpApi');
  const id = 'ApiErrorsAlarm';
  expect(isInAlarm(alarm(id), [errors(6), errors(6), errors(0), errors(0), errors(6)])).toBe(true);
  expect(isInAlarm(alarm(id), times(5, errors(5)))).toBe(false);
  expect(isInAlarm(alarm(id), times(5, []))).toBe(false);
});

test.each(steps)('CacheFailuresAlarm goes off when %s fails often', async (step) => {
  const one = await emittedBy(() => cacheFailure(step));
  const many = times(11, one).flat();
  expect(isInAlarm(alarm('CacheFailuresAlarm'), times(5, many))).toBe(true);
  expect(isInAlarm(alarm('CacheFailuresAlarm'), times(5, many.slice(1)))).toBe(false);
  expect(isInAlarm(alarm('CacheFailuresAlarm'), times(5, []))).toBe(false);
});

test('CacheFailuresAlarm counts all steps together', async () => {
  const each = await emittedBy(() => steps.forEach((step) => void cacheFailure(step)));
  expect(isInAlarm(alarm('CacheFailuresAlarm'), times(5, times(4, each).flat()))).toBe(true);
  expect(isInAlarm(alarm('CacheFailuresAlarm'), times(5, times(3, each).flat()))).toBe(false);
});

test('OutcomeUnknownAlarm goes off at one lost answer to COMMIT that could not be found out', async () => {
  const unknown = await emittedBy(() =>
    requestThatEnds({ kind: 'unknown', cause: new Error('lost') }),
  );
  const other = await emittedBy(() =>
    requestThatEnds({ kind: 'rejected', code: 'ALREADY_EXISTS' }),
  );
  expect(isInAlarm(alarm('OutcomeUnknownAlarm'), [unknown])).toBe(true);
  expect(isInAlarm(alarm('OutcomeUnknownAlarm'), [other])).toBe(false);
});

test('an alarm of one stage does not look at what another stage emits (deploy E1)', async () => {
  const prod = await packagedTemplate('existing');
  const of = (id: string) => propertiesOf<Alarm>(prod, id);
  const late = (stage: string) =>
    emittedBy(() => purgeRun({ oldestExpiredAgeSeconds: 901, failed: ['markers'] }, stage));
  const fine = (stage: string) => emittedBy(() => purgeRun({}, stage));
  const failures = (stage: string) =>
    emittedBy(() => times(11, 'claim' as const).forEach((step) => void cacheFailure(step, stage)));
  const unknown = (stage: string) =>
    emittedBy(() => requestThatEnds({ kind: 'unknown', cause: new Error('lost') }, stage));

  for (const [id, emit] of [
    ['OldestExpiredAgeAlarm', late],
    ['PurgeFailuresAlarm', late],
    ['CacheFailuresAlarm', failures],
    ['OutcomeUnknownAlarm', unknown],
  ] as const) {
    const theirs = await emit('dev');
    const own = [...(await emit('prod')), ...theirs];
    const quiet = [...(await fine('prod')), ...theirs];
    expect([id, isInAlarm(of(id), times(5, own))]).toEqual([id, true]);
    expect([id, isInAlarm(of(id), times(5, quiet))]).toEqual([id, false]);
  }
  // Whose purge is dead is told, though the other's runs.
  expect(isInAlarm(of('OldestExpiredAgeAlarm'), times(5, await fine('dev')))).toBe(true);
});

test('the functions of a stage emit its name (deploy E1)', async () => {
  for (const [stage, variant] of [
    ['dev', 'own'],
    ['prod', 'existing'],
  ] as const) {
    for (const [, { Properties }] of ofType(
      await packagedTemplate(variant),
      'AWS::Lambda::Function',
    )) {
      expect(Properties).toMatchObject({ Environment: { Variables: { BACKSTOP_STAGE: stage } } });
    }
  }
});

test('every alarm is tested above, tells the topic of both ends, and has a description', () => {
  const tested = [
    'ApiErrorsAlarm',
    'CacheFailuresAlarm',
    'OldestExpiredAgeAlarm',
    'OutcomeUnknownAlarm',
    'ProxyPinningAlarm',
    'PurgeDeadLettersAlarm',
    'PurgeErrorsAlarm',
    'PurgeFailuresAlarm',
  ];
  const alarms = ofType(template, 'AWS::CloudWatch::Alarm');
  expect(alarms.map(([id]) => id).sort()).toEqual(tested);
  for (const [id, { Properties }] of alarms) {
    const told = [{ Ref: 'AlarmTopic' }];
    expect([id, Properties]).toMatchObject([id, { AlarmActions: told, OKActions: told }]);
    expect((Properties as unknown as Alarm).AlarmDescription.length).toBeGreaterThan(100);
  }
});
