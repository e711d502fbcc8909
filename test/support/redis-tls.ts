/** A Redis as ElastiCache Serverless shows itself: one endpoint with TLS, that is a cluster behind it. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { freePort } from '../../infra/local/ports.ts';
import { startRedis } from '../../infra/local/redis.ts';
import { createRunFolder } from '../../infra/local/run-folder.ts';
import { createAuthority } from './certificates.ts';
import { eventually } from './waiting.ts';

export interface TlsRedis {
  /** Where it answers with a certificate for `localhost`, signed by `authority`. */
  readonly port: number;
  /** In PEM; nobody trusts it yet. */
  readonly authority: string;
  /** A client of the test's own, in plain text on another port. */
  readonly raw: Redis;
  close(): Promise<void>;
}

export async function startTlsRedis(): Promise<TlsRedis> {
  const folder = await createRunFolder();
  const authority = createAuthority('The authority of this test');
  const { certificate, key } = authority.issue('localhost');
  const file = async (name: string, text: string) => {
    await writeFile(join(folder.path, name), text, { mode: 0o600 });
    return join(folder.path, name);
  };
  const port = await freePort();
  const server = await startRedis({
    runDir: folder.path,
    settings: {
      'tls-port': String(port),
      'tls-cert-file': await file('server.pem', certificate),
      'tls-key-file': await file('server.key', key),
      'tls-ca-cert-file': await file('authority.pem', authority.certificate),
      'tls-auth-clients': 'no',
      'cluster-enabled': 'yes',
      // It sends those who came by TLS to a port with TLS.
      'tls-cluster': 'yes',
      'cluster-port': String(await freePort()),
      'cluster-announce-ip': '127.0.0.1',
    },
  });
  const raw = new Redis(server.url);
  await raw.cluster('ADDSLOTSRANGE', 0, 16_383);
  await eventually(
    async () => (await raw.cluster('INFO')).includes('cluster_state:ok'),
    'the cluster whole',
  );
  return {
    port,
    authority: authority.certificate,
    raw,
    close: async () => {
      raw.disconnect();
      await server.close();
      await folder.remove();
    },
  };
}
