/** A Postgres as RDS Proxy shows itself: TLS, and whoever is not its superuser sends a password in clear text. */
import { chown, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { migrateAll } from '../../functions/operations/migrations.ts';
import { startPostgres } from '../../infra/local/postgres.ts';
import { createRunFolder, unprivilegedIdentity } from '../../infra/local/run-folder.ts';
import { createAuthority } from './certificates.ts';

export interface TlsPostgres {
  /** Where it answers with a certificate for `localhost`, signed by `authority`. */
  readonly port: number;
  /** In PEM; nobody trusts it yet. */
  readonly authority: string;
  /** The same, as a file. */
  readonly authorityFile: string;
  /** As the superuser, in plain text. */
  readonly admin: pg.Client;
  close(): Promise<void>;
}

const ACCESS = `
host    all postgres       127.0.0.1/32 trust
hostssl all backstop_api   127.0.0.1/32 password
hostssl all backstop_purge 127.0.0.1/32 password
`;

export async function startTlsPostgres(): Promise<TlsPostgres> {
  const folder = await createRunFolder();
  const authority = createAuthority('The authority of this test');
  const { certificate, key } = authority.issue('localhost');
  const file = async (name: string, text: string, mode = 0o644) => {
    const path = join(folder.path, name);
    await writeFile(path, text, { mode });
    const server = unprivilegedIdentity();
    if (server) await chown(path, server.uid, server.gid);
    return path;
  };
  const authorityFile = await file('authority.pem', authority.certificate);
  const server = await startPostgres({
    runDir: folder.path,
    settings: {
      ssl: 'on',
      ssl_cert_file: await file('server.pem', certificate),
      ssl_key_file: await file('server.key', key, 0o600),
      hba_file: await file('access.conf', ACCESS),
    },
  });
  await migrateAll(server.url);
  const admin = new pg.Client({ connectionString: server.url });
  await admin.connect();
  return {
    port: server.port,
    authority: authority.certificate,
    authorityFile,
    admin,
    close: async () => {
      await admin.end();
      await server.close();
      await folder.remove();
    },
  };
}
