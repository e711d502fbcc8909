/** A real pgbouncer in transaction mode before a database, from the distribution's own package. */
import { existsSync, writeFileSync } from 'node:fs';
import { chown, cp } from 'node:fs/promises';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { cacheFolder } from '../../infra/local/cache-folder.ts';
import {
  debianOrigin,
  debianRelease,
  fetchDebianPackages,
  libraryPath,
} from '../../infra/local/debian-package.ts';
import { environment, serverEnvironment } from '../../infra/local/environment.ts';
import {
  createRunFolder,
  createServerFolder,
  unprivilegedIdentity,
} from '../../infra/local/run-folder.ts';
import { startServer } from '../../infra/local/server.ts';
import { urlOf } from './urls.ts';

/** Whether one can be had here: it comes from Debian or Ubuntu. */
export const hasPgbouncer = debianRelease() !== undefined;

/** @returns the same database's URL, through a pooler that is closed when the test ends. */
export async function startPgbouncer(targetUrl: string): Promise<string> {
  const run = await createRunFolder();
  const folder = await createServerFolder(run.path, 'pgbouncer');
  const root = await fetchedTo(folder);
  const identity = unprivilegedIdentity();
  if (identity) await chown(folder, identity.uid, identity.gid);
  const server = await startServer({
    name: 'pgbouncer',
    origin: debianOrigin(debianRelease() as string),
    launch: (port) => {
      const config = join(folder, 'pgbouncer.ini');
      writeFileSync(config, configurationOf(targetUrl, port));
      return {
        command: join(root, 'usr', 'sbin', 'pgbouncer'),
        args: [config],
        env: {
          ...serverEnvironment(folder, environment()),
          LD_LIBRARY_PATH: libraryPath(root),
        },
        cwd: folder,
        logFile: join(folder, 'pgbouncer.log'),
        identity,
      };
    },
    url: (port) => urlOf(targetUrl, { port }),
    ready: /process up/,
    stopSignals: ['SIGTERM'],
    closeSignals: ['SIGTERM'],
  });
  onTestFinished(async () => {
    await server.close();
    await run.remove();
  });
  return server.url;
}

/** Fetched once for all runs, and copied to where an unprivileged user reaches it. */
async function fetchedTo(folder: string): Promise<string> {
  const cached = join(cacheFolder(environment()), `pgbouncer-${debianRelease()}`);
  if (!existsSync(cached)) await fetchDebianPackages(['pgbouncer'], cached, environment());
  const root = join(folder, 'root');
  await cp(cached, root, { recursive: true, verbatimSymlinks: true });
  return root;
}

function configurationOf(targetUrl: string, port: number): string {
  const { port: targetPort, username, pathname, password } = new URL(targetUrl);
  const target = `host=127.0.0.1 port=${targetPort} dbname=${pathname.slice(1)}`;
  return `[databases]
* = ${target} user=${username} password=${password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
`;
}
