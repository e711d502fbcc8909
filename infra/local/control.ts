/** `npm run local -- stop|start redis|postgres|dynamodb`: takes a part of the running service away, or back. */
import { parseArgs } from 'node:util';
import { runningInstance, sendCommand } from './control-client.ts';
import { print, printError } from './output.ts';
import { SERVICE_NAMES } from './services.ts';

const VERBS = ['stop', 'start'];
const USAGE = `usage: npm run local -- ${VERBS.join('|')} ${SERVICE_NAMES.join('|')}`;

function parseCliOptions(): string | undefined {
  try {
    const { positionals } = parseArgs({ allowPositionals: true });
    const [verb = '', name = '', ...more] = positionals;
    const isKnown = VERBS.includes(verb) && SERVICE_NAMES.some((known) => known === name);
    return isKnown && more.length === 0 ? `${verb} ${name}` : undefined;
  } catch {
    return undefined;
  }
}

async function main(): Promise<number> {
  const command = parseCliOptions();
  const instance = command && (await runningInstance());
  if (!command || !instance) {
    printError(command ? 'nothing runs from this folder: start it with `npm start`' : USAGE);
    return 2;
  }
  const { code, message } = await sendCommand(instance.control, command);
  if (code === 0) print(message);
  else printError(message);
  return code;
}

process.exitCode = await main();
