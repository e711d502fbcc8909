/**
 * Every metric the product emits, as CloudWatch EMF on stdout. The alarms and the
 * dashboard name these and no others. Never a key or a tenant as a dimension.
 */
import { Metrics, MetricUnit } from '@aws-lambda-powertools/metrics';
import type { Layer, ReportedOutcome } from '../lambda/reports.ts';
import type { PurgeResult } from '../postgres/purge/run.ts';

export interface Meter {
  /** One request's end: which layer decided, and how. */
  outcome(layer: Layer, outcome: ReportedOutcome): void;
  /** A request without a key, let through by key mode `optional`. */
  keyEmpty(): void;
  /** L1 failed; the request went on without it. */
  cacheFailure(step: string): void;
  cleanup(measured: CleanupMeasured): void;
}

/** One run of the purge. What is null could not be measured, or (the drain) never ends. */
export interface CleanupMeasured extends Omit<PurgeResult, 'batches' | 'drained' | 'retentions'> {
  readonly batchDurationsSeconds: readonly number[];
}

const NAMESPACE = 'Backstop';

/**
 * @param stage a dimension of every metric: the stages of one account and region would
 * otherwise be one metric, and an alarm of one look at what the other emits.
 */
export function createMeter(serviceName: string, stage: string): Meter {
  const metrics = new Metrics({ namespace: NAMESPACE, serviceName, defaultDimensions: { stage } });
  // One blob for each event, filled and published in one go: requests may overlap in one
  // process (serverless-offline), and what lay in the buffer meanwhile would be mixed up.
  const emit = (fill: (metrics: Metrics) => void) => {
    fill(metrics);
    metrics.publishStoredMetrics();
  };
  return {
    outcome: (layer, outcome) =>
      emit((metrics) => {
        metrics.addDimensions({ layer, outcome });
        metrics.addMetric('idempotency_outcome_total', MetricUnit.Count, 1);
      }),
    keyEmpty: () =>
      emit((metrics) =>
        metrics.addMetric('idempotency_request_id_empty_total', MetricUnit.Count, 1),
      ),
    cacheFailure: (step) =>
      emit((metrics) => {
        metrics.addDimension('step', step);
        metrics.addMetric('idempotency_cache_failure_total', MetricUnit.Count, 1);
      }),
    cleanup: (measured) => emit((metrics) => addCleanup(metrics, measured)),
  };
}

type Unit = (typeof MetricUnit)[keyof typeof MetricUnit];

function addCleanup(metrics: Metrics, measured: CleanupMeasured): void {
  const add = (name: string, unit: Unit, value: number | null) => {
    if (value !== null) metrics.addMetric(name, unit, value);
  };
  add('idempotency_cleanup_rows_total', MetricUnit.Count, measured.rows);
  add('idempotency_cleanup_failures_total', MetricUnit.Count, measured.failed.length);
  add(
    'idempotency_oldest_expired_age_seconds',
    MetricUnit.Seconds,
    measured.oldestExpiredAgeSeconds,
  );
  add('idempotency_cleanup_backlog_rows', MetricUnit.Count, measured.leftRows);
  add('idempotency_cleanup_rows_per_second', MetricUnit.CountPerSecond, measured.rowsPerSecond);
  add(
    'idempotency_cleanup_arrival_rows_per_second',
    MetricUnit.CountPerSecond,
    measured.arrivalPerSecond,
  );
  add('idempotency_cleanup_drain_seconds', MetricUnit.Seconds, measured.secondsToDrain);
  // Last: beyond 100 values Powertools sends what it has and goes on in another blob.
  for (const seconds of measured.batchDurationsSeconds) {
    add('idempotency_cleanup_batch_duration_seconds', MetricUnit.Seconds, seconds);
  }
}
