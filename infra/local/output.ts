/** What a command was asked for. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** What it has to say about it: progress, refusals, failures. */
export function printError(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** The address without its password, be it before the host or among the parameters. */
export function masked(url: string): string {
  if (!URL.canParse(url)) return '(not shown)';
  const shownUrl = new URL(url);
  if (shownUrl.password !== '') shownUrl.password = '***';
  for (const name of shownUrl.searchParams.keys()) {
    if (/pass/i.test(name)) shownUrl.searchParams.set(name, '***');
  }
  return shownUrl.href;
}
