/** `npm run local -- stop|start redis|postgres|dynamodb`: takes a part of the running service away, or back. */
import { parseArgs } from 'node:util';
import { askControl, runningInstance } from './control-client.ts';
import { complain, print } from './output.ts';
import { partNames } from './services.ts';

const verbs = ['stop', 'start'];
const usage = `usage: npm run local -- ${verbs.join('|')} ${partNames.join('|')}`;

function wordsFromArguments(): { verb: string; name: string } | undefined {
  try {
    const [verb = '', name = '', ...more] = parseArgs({
      allowPositionals: true,
    }).positionals;
    const known = verbs.includes(verb) && partNames.some((part) => part === name);
    return known && more.length === 0 ? { verb, name } : undefined;
  } catch {
    return undefined;
  }
}

async function main(): Promise<number> {
  const words = wordsFromArguments();
  if (words === undefined) {
    complain(usage);
    return 2;
  }
  const instance = await runningInstance();
  if (instance === undefined) {
    complain('nothing runs from this folder: start it with `npm start`');
    return 2;
  }
  const { status, message } = await askControl(
    instance.control,
    'POST',
    `/${words.verb}/${words.name}`,
  );
  if (status === 200) print(message);
  else complain(message);
  return status === 200 ? 0 : status < 500 ? 2 : 1;
}

process.exitCode = await main();
