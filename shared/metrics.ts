/**
 * Every metric the product emits, as CloudWatch EMF on stdout. The alarms and the
 * dashboard name these and no others. Never a key or a tenant as a dimension.
 */
import { Metrics, MetricUnit } from '@aws-lambda-powertools/metrics';

export interface Meter {
  /** One request's end: which layer decided, and how. */
  outcome(layer: string, outcome: string): void;
  /** A request without a key, let through by key mode `optional`. */
  keyEmpty(): void;
  /** L1 failed; the request went on without it. */
  fastPathFailure(step: string): void;
  cleanup(measured: CleanupMeasured): void;
}

export interface CleanupMeasured {
  readonly rows: number;
  readonly batchDurationsSeconds: readonly number[];
  /** 0 when nothing that has expired is left. */
  readonly oldestExpiredAgeSeconds: number;
}

const NAMESPACE = 'Backstop';

export function createMeter(serviceName: string): Meter {
  // One blob for each event: requests may overlap in one process (serverless-offline),
  // and a shared buffer would mix their dimensions.
  const emit = (fill: (metrics: Metrics) => void) => {
    const metrics = new Metrics({ namespace: NAMESPACE, serviceName });
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
    fastPathFailure: (step) =>
      emit((metrics) => {
        metrics.addDimension('step', step);
        metrics.addMetric('idempotency_fast_path_failure_total', MetricUnit.Count, 1);
      }),
    cleanup: (measured) =>
      emit((metrics) => {
        metrics.addMetric('idempotency_cleanup_rows_total', MetricUnit.Count, measured.rows);
        for (const seconds of measured.batchDurationsSeconds) {
          metrics.addMetric(
            'idempotency_cleanup_batch_duration_seconds',
            MetricUnit.Seconds,
            seconds,
          );
        }
        metrics.addMetric(
          'idempotency_oldest_expired_age_seconds',
          MetricUnit.Seconds,
          measured.oldestExpiredAgeSeconds,
        );
      }),
  };
}
