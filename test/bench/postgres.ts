import { readFileSync } from 'node:fs';
import pg from 'pg';
import { migrateAll } from '../../functions/operations/migrations.ts';
import { startPostgres } from '../../infra/local/postgres.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';

/** A PostgreSQL of the bench's own, migrated. */
export interface BenchPostgres {
  /** The superuser's. */
  readonly url: string;
  connect(): Promise<pg.Client>;
  close(): Promise<void>;
}

export async function openBenchPostgres(): Promise<BenchPostgres> {
  const folder = await createRunFolder();
  // As much memory as a small server has, and no checkpoint in the middle of a measurement.
  const settings = { shared_buffers: '512MB', max_wal_size: '8GB', checkpoint_timeout: '30min' };
  const server = await startPostgres({ runDir: folder.path, settings });
  const clients: pg.Client[] = [];
  await migrateAll(server.url);
  return {
    url: server.url,
    connect: async () => {
      const client = new pg.Client({ connectionString: server.url });
      client.on('error', () => {});
      clients.push(client);
      await client.connect();
      return client;
    },
    close: async () => {
      await Promise.all(clients.map((client) => client.end().catch(() => {})));
      await server.close();
      await folder.remove();
    },
  };
}

const TICKS_PER_SECOND = 100;

/** What the backend of a connection has used of the processor so far, user and system. */
export function backendCpuSeconds(client: pg.Client): number {
  const pid = (client as unknown as { processID: number }).processID;
  // The second field is the program's name in brackets, which may hold anything.
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND;
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : ((sorted[middle - 1] ?? Number.NaN) + upper) / 2;
}

/** To so many decimals, as a figure in a table. */
export function rounded(value: number, decimals = 2): number {
  return Number(value.toFixed(decimals));
}
