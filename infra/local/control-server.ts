import { randomUUID } from 'node:crypto';
import { link, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { type ControlAnswer, type LocalInstance, runningInstance } from './control-client.ts';
import { paths } from './project.ts';
import { createRunFolder } from './run-folder.ts';
import { SERVICE_NAMES, type ServiceName, type Services } from './services.ts';

export interface Control {
  /** The services are there, as the file then says too. */
  ready(instance: Partial<LocalInstance>, services: Services): Promise<void>;
  close(): Promise<void>;
}

/**
 * Makes this process the one instance of this folder, by the file that says so: whoever creates it
 * first. Takes the commands of `npm run local` on a socket that only this user can open. Answers
 * with the other instance when there is one that lives.
 */
export async function takeControl(
  url: string | undefined,
): Promise<Control | { other: LocalInstance }> {
  const folder = await createRunFolder();
  const instance = { pid: process.pid, ...(url && { url }), control: folder.socketPath };
  let services: Services | undefined;
  folder.listener.on('connection', (socket) => {
    createInterface({ input: socket }).once('line', async (line) => {
      const answer = await handleCommand(line, services).catch(
        (error: Error): ControlAnswer => ({ code: 1, message: error.message }),
      );
      socket.end(JSON.stringify(answer));
    });
  });
  const other = await claimLocalFile(instance);
  if (other !== undefined) {
    await folder.remove();
    return { other };
  }
  return {
    ready: async (more, started) => {
      services = started;
      await writeLocalFile({ ...instance, ...more }, rename);
    },
    close: async () => {
      await rm(paths.localFile, { force: true });
      await folder.remove();
    },
  };
}

async function claimLocalFile(instance: LocalInstance): Promise<LocalInstance | undefined> {
  await mkdir(paths.localFolder, { recursive: true });
  for (;;) {
    try {
      // A link fails where a file is already, and what it makes is complete from the first moment.
      await writeLocalFile(instance, link);
      return undefined;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    const other = await runningInstance();
    if (other !== undefined) return other;
    await rm(paths.localFile, { force: true });
  }
}

/** Private, since DATABASE_URL may hold a password. */
async function writeLocalFile(
  instance: LocalInstance,
  place: typeof link | typeof rename,
): Promise<void> {
  const draft = `${paths.localFile}.${randomUUID()}`;
  try {
    await writeFile(draft, `${JSON.stringify(instance, undefined, 2)}\n`, { mode: 0o600 });
    await place(draft, paths.localFile);
  } finally {
    await rm(draft, { force: true });
  }
}

/** `stop redis`, `start postgres` and so on. */
export async function handleCommand(
  line: string,
  services: Services | undefined,
): Promise<ControlAnswer> {
  const [verb, word] = line.split(' ');
  const name = SERVICE_NAMES.find((known) => known === word);
  if (name === undefined || (verb !== 'stop' && verb !== 'start')) {
    return { code: 2, message: `unknown command: ${line}` };
  }
  if (services === undefined) return { code: 2, message: 'the services are still starting' };
  return stopOrStart(services, verb, name);
}

async function stopOrStart(
  services: Services,
  verb: 'stop' | 'start',
  name: ServiceName,
): Promise<ControlAnswer> {
  const service = services[name];
  switch (service.from) {
    case 'environment': {
      const message = `${name} is your own (${service.variable}): ${verb} it where you started it`;
      return { code: 2, message };
    }
    case 'nowhere':
      return { code: 2, message: `there is no ${name} in this run: ${service.reason}` };
    case 'starting':
      return { code: 2, message: `${name} is still starting` };
  }
  const { server } = service;
  const wasRunning = server.pid !== undefined;
  await server[verb]();
  const [changed, unchanged] =
    verb === 'stop' ? ['stopped', 'was stopped already'] : ['started', 'was running already'];
  const message = wasRunning === (verb === 'stop') ? `${changed} ${name}` : `${name} ${unchanged}`;
  return { code: 0, message: `${message} (127.0.0.1:${server.port})` };
}
