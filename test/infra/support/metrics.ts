/** What CloudWatch would make of measurements: alarms are evaluated on what the code really emits. */
import { expressionOf } from './template.ts';

/** One value of one metric in one period. */
export interface Sample {
  readonly namespace: string;
  readonly name: string;
  readonly dimensions: Readonly<Record<string, string>>;
  readonly value: number;
}

interface Emf {
  readonly _aws: {
    readonly CloudWatchMetrics: readonly {
      readonly Namespace: string;
      readonly Dimensions: readonly (readonly string[])[];
      readonly Metrics: readonly { readonly Name: string }[];
    }[];
  };
}

/** The samples in lines of EMF, as CloudWatch Logs reads them. */
export function samplesOf(lines: readonly Record<string, unknown>[]): Sample[] {
  return lines
    .filter((line): line is Record<string, unknown> & Emf => '_aws' in line)
    .flatMap((line) =>
      line._aws.CloudWatchMetrics.flatMap(({ Namespace, Dimensions, Metrics }) =>
        Dimensions.flatMap((names) =>
          Metrics.flatMap(({ Name }) =>
            [line[Name]].flat().map((value) => ({
              namespace: Namespace,
              name: Name,
              dimensions: Object.fromEntries(names.map((name) => [name, String(line[name])])),
              value: Number(value),
            })),
          ),
        ),
      ),
    );
}

interface MetricName {
  readonly Namespace: string;
  readonly MetricName: string;
  readonly Dimensions: readonly { readonly Name: string; readonly Value: unknown }[];
}

export interface Alarm extends Partial<MetricName> {
  readonly AlarmDescription: string;
  readonly Statistic?: 'Sum' | 'Maximum';
  readonly EvaluationPeriods: number;
  readonly DatapointsToAlarm?: number;
  readonly Threshold: number;
  readonly ComparisonOperator: 'GreaterThanThreshold';
  readonly TreatMissingData: 'breaching' | 'notBreaching';
  readonly AlarmActions: readonly unknown[];
  readonly Metrics?: readonly {
    readonly Id: string;
    readonly Expression?: string;
    readonly MetricStat?: { readonly Stat: 'Sum'; readonly Metric: MetricName };
  }[];
}

/** The metrics that an alarm is about. */
export function metricsOf(alarm: Alarm): MetricName[] {
  const { Namespace, MetricName, Dimensions = [] } = alarm;
  const parts = (alarm.Metrics ?? []).flatMap(({ MetricStat }) => MetricStat?.Metric ?? []);
  return Namespace && MetricName ? [{ Namespace, MetricName, Dimensions }] : parts;
}

/** Whether it is in alarm after these periods, the newest last. */
export function isInAlarm(alarm: Alarm, periods: readonly (readonly Sample[])[]): boolean {
  const { EvaluationPeriods, DatapointsToAlarm = EvaluationPeriods } = alarm;
  const evaluated = Array.from(
    { length: EvaluationPeriods },
    (_, n) => periods[periods.length - EvaluationPeriods + n] ?? [],
  );
  const breaching = evaluated.filter((samples) => {
    const value = datapoint(alarm, samples);
    return value === undefined ? alarm.TreatMissingData === 'breaching' : value > alarm.Threshold;
  });
  return breaching.length >= DatapointsToAlarm;
}

function datapoint(alarm: Alarm, samples: readonly Sample[]): number | undefined {
  if (!alarm.Metrics) return statistic(alarm as MetricName, alarm.Statistic, samples);
  // Of metric math, what the alarms use: FILL(id, 0) + FILL(id, 0) + …
  const sum = alarm.Metrics.find(({ Expression }) => Expression)?.Expression ?? '';
  const terms = sum.split(' + ').map((term) => /^FILL\((\w+), 0\)$/.exec(term)?.[1]);
  const values = terms.map((id) => {
    const stat = alarm.Metrics?.find((metric) => metric.Id === id)?.MetricStat;
    if (!stat) throw new Error(`${id} is no metric of ${sum}`);
    return statistic(stat.Metric, stat.Stat, samples);
  });
  // Nothing to fill where no metric of the expression has data.
  if (values.every((value) => value === undefined)) return undefined;
  return values.reduce<number>((total, value) => total + (value ?? 0), 0);
}

/** Only the very same dimensions are the same metric: there is no sum over those left out. */
function statistic(
  metric: MetricName,
  kind: 'Sum' | 'Maximum' = 'Sum',
  samples: readonly Sample[],
): number | undefined {
  const wanted = dimensionsOf(metric);
  const values = samples
    .filter(({ namespace, name, dimensions }) => {
      const is = Object.entries(dimensions).map(([key, value]) => `${key}=${value}`);
      const isSame = is.sort().join() === wanted;
      return namespace === metric.Namespace && name === metric.MetricName && isSame;
    })
    .map(({ value }) => value);
  if (values.length === 0) return undefined;
  return kind === 'Sum' ? values.reduce((a, b) => a + b) : Math.max(...values);
}

export function dimensionsOf({ Dimensions }: MetricName): string {
  return Dimensions.map(({ Name, Value }) => `${Name}=${nameOf(Value)}`)
    .sort()
    .join();
}

/** `Ref` and `GetAtt` by what they refer to: which is what a sample of the tests says, too. */
function nameOf(value: unknown): string {
  const [, argument] = expressionOf(value) ?? [undefined, value];
  return [argument].flat().join('.');
}
