/** No metric on the dashboard or in an alarm that nobody emits, and none emitted that nobody looks at. */
import { beforeAll, expect, test } from 'vitest';
import { spec } from './support/check-properties.ts';
import {
  cacheFailure,
  emittedBy,
  purgeRun,
  requestThatEnds,
  requestWithoutKey,
  steps,
} from './support/emitted.ts';
import { type Alarm, dimensionsOf, metricsOf, type Sample } from './support/metrics.ts';
import { packagedTemplate } from './support/package-service.ts';
import { ofType, propertiesOf, type Template } from './support/template.ts';

/** A metric that is looked at: its dimensions, or only their names where it is searched for. */
interface Shown {
  readonly where: string;
  readonly namespace: string;
  readonly name: string;
  readonly dimensions?: string;
  readonly dimensionNames?: string;
  /** Of the ones searched for. */
  readonly stage?: string;
}

let shown: Shown[];
let emitted: Sample[];

beforeAll(async () => {
  const template = await packagedTemplate('own');
  shown = [...inAlarms(template), ...onDashboard(template)];
});

async function emitEverything(): Promise<void> {
  emitted = await emittedBy(async () => {
    purgeRun();
    steps.forEach((step) => void cacheFailure(step));
    requestWithoutKey();
    await requestThatEnds({ kind: 'unknown', cause: new Error('lost') });
    await requestThatEnds({ kind: 'rejected', code: 'ALREADY_EXISTS' });
  });
}

test('every metric of ours that is shown is emitted, with just these dimensions', async () => {
  await emitEverything();
  const ours = shown.filter(({ namespace }) => namespace === 'Backstop');
  expect(ours.length).toBeGreaterThan(15);
  const unknown = ours.filter((one) => !emitted.some((sample) => isOf(sample, one)));
  expect(unknown).toEqual([]);
});

test('every metric that is emitted is shown', async () => {
  await emitEverything();
  expect(new Set(emitted.map(({ name }) => name)).size).toBeGreaterThan(8);
  const unseen = emitted.filter((sample) => !shown.some((one) => isOf(sample, one)));
  expect(unseen).toEqual([]);
});

test('every metric of AWS that is shown exists', () => {
  // The description knows no metrics of RDS Proxy; these are in its documentation, all of them
  // by ProxyName alone: Monitoring RDS Proxy metrics with Amazon CloudWatch.
  const ofProxy = [
    'ClientConnections',
    'DatabaseConnections',
    'DatabaseConnectionsCurrentlySessionPinned',
  ];
  const known = new Set([
    ...spec.all('metric').map(({ namespace, name }) => `${namespace} ${name}`),
    ...ofProxy.map((name) => `AWS/RDS ${name}`),
  ]);
  const theirs = shown.filter(({ namespace }) => namespace !== 'Backstop');
  expect(theirs.length).toBeGreaterThan(10);
  expect(theirs.filter(({ namespace, name }) => !known.has(`${namespace} ${name}`))).toEqual([]);
});

test('the dashboard shows latency by percentile, and the purge against what arrives', () => {
  const names = shown.filter(({ where }) => where.startsWith('dashboard')).map(({ name }) => name);
  for (const name of ['Latency', 'Duration', 'DatabaseConnections', 'ClientConnections']) {
    expect(names).toContain(name);
  }
  expect(names).toContain('idempotency_cleanup_rows_per_second');
  expect(names).toContain('idempotency_cleanup_arrival_rows_per_second');
});

function isOf(sample: Sample, one: Shown): boolean {
  const dimensions = Object.entries(sample.dimensions).map(([key, value]) => `${key}=${value}`);
  const names = Object.keys(sample.dimensions);
  return (
    sample.namespace === one.namespace &&
    sample.name === one.name &&
    (one.dimensions === undefined || one.dimensions === dimensions.sort().join()) &&
    (one.dimensionNames === undefined || one.dimensionNames === names.sort().join()) &&
    (one.stage === undefined || one.stage === sample.dimensions['stage'])
  );
}

function inAlarms(template: Template): Shown[] {
  return ofType(template, 'AWS::CloudWatch::Alarm').flatMap(([id, { Properties }]) =>
    metricsOf(Properties as unknown as Alarm).map((metric) => ({
      where: id,
      namespace: metric.Namespace,
      name: metric.MetricName,
      dimensions: dimensionsOf(metric),
    })),
  );
}

interface Widget {
  readonly properties: { readonly title: string; readonly metrics: readonly unknown[][] };
}

function onDashboard(template: Template): Shown[] {
  const { DashboardBody } = propertiesOf<{ DashboardBody: { 'Fn::Sub': string } }>(
    template,
    'Dashboard',
  );
  // As CloudFormation puts it together: ${!X} becomes ${X}, and a name becomes what it stands for.
  const body = DashboardBody['Fn::Sub'].replaceAll(/\$\{(!?)([^}]+)\}/g, (_, literal, name) =>
    literal ? `\${${name}}` : name,
  );
  const { widgets } = JSON.parse(body) as { widgets: Widget[] };
  return widgets.flatMap(({ properties: { title, metrics } }) =>
    metrics.map((metric) => ({ where: `dashboard, ${title}`, ...shownBy(metric) })),
  );
}

/** `[namespace, name, dimension, value, …, options]`, or `[{ expression }]` with a search. */
function shownBy(metric: readonly unknown[]): Omit<Shown, 'where'> {
  const last = metric.at(-1);
  const texts = (typeof last === 'object' ? metric.slice(0, -1) : metric) as string[];
  if (texts.length === 0) {
    const { expression } = last as { expression: string };
    const [, schema, name, stage] =
      /^SEARCH\('\{([^}]+)\} MetricName="(\w+)" stage="(\w+)"', 'Sum', 60\)$/.exec(expression) ??
      [];
    const [namespace = '', ...names] = (schema ?? '').split(',');
    return { namespace, name: name ?? '', dimensionNames: names.sort().join(), stage: stage ?? '' };
  }
  const [namespace = '', name = '', ...rest] = texts;
  const pairs = rest.flatMap((text, n) => (n % 2 === 0 ? [`${text}=${rest[n + 1]}`] : []));
  return { namespace, name, dimensions: pairs.sort().join() };
}
