import { chmod } from 'node:fs/promises';
import { createServer, type Server as HttpServer } from 'node:http';
import { join } from 'node:path';
import type { ControlAnswer, LocalInstance } from './control-client.ts';
import { createRunFolder } from './run-folder.ts';
import { type PartName, partNames, type Services } from './services.ts';

/** What the commands can see and touch; the services are there once they are up. */
export type Controlled = { instance: LocalInstance; services?: Services };

export type ControlServer = { path: string; close(): Promise<void> };

/** Takes `npm run local`'s commands on a unix socket that only this user can open. */
export async function startControlServer(controlled: () => Controlled): Promise<ControlServer> {
  const folder = await createRunFolder();
  // The folder is closed before the socket is in it, so there is no moment when others can open it.
  await chmod(folder.path, 0o700);
  const path = join(folder.path, 'control');
  const server = createServer(async (request, response) => {
    const answer = await obey(controlled(), request.method ?? '', request.url ?? '').catch(
      (error: Error): ControlAnswer => ({
        status: 500,
        message: error.message,
      }),
    );
    response.writeHead(answer.status, {
      'content-type': 'text/plain',
      connection: 'close',
    });
    response.end(answer.message);
  });
  await listen(server, path);
  await chmod(path, 0o600);
  return {
    path,
    close: async () => {
      server.close();
      server.closeAllConnections();
      await folder.remove();
    },
  };
}

function listen(server: HttpServer, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, resolve);
  });
}

async function obey(
  { instance, services }: Controlled,
  method: string,
  url: string,
): Promise<ControlAnswer> {
  if (method === 'GET' && url === '/') return { status: 200, message: JSON.stringify(instance) };
  const [, verb, word] = url.split('/');
  const name = partNames.find((part) => part === word);
  if (method !== 'POST' || name === undefined || (verb !== 'stop' && verb !== 'start')) {
    return { status: 404, message: `unknown command: ${method} ${url}` };
  }
  if (services === undefined) return { status: 409, message: 'the services are still starting' };
  return takeAwayOrBringBack(services, verb, name);
}

async function takeAwayOrBringBack(
  services: Services,
  verb: 'stop' | 'start',
  name: PartName,
): Promise<ControlAnswer> {
  const part = services[name];
  if (part.from === 'environment') {
    const message = `${name} is your own (${part.variable}): ${verb} it where you started it`;
    return { status: 409, message };
  }
  if (part.from === 'nowhere') {
    return {
      status: 409,
      message: `there is no ${name} in this run: ${part.reason}`,
    };
  }
  if (part.from === 'starting') return { status: 409, message: `${name} is still starting` };
  const { server } = part;
  const before = server.pid;
  if (verb === 'stop') {
    await server.stop();
    const message = before === undefined ? `${name} was stopped already` : `stopped ${name}`;
    return { status: 200, message: `${message} (127.0.0.1:${server.port})` };
  }
  await server.start();
  const message = before === undefined ? `started ${name}` : `${name} was running already`;
  return { status: 200, message: `${message} (127.0.0.1:${server.port})` };
}
