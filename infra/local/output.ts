/** What a command was asked for. */
export function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

/** What it has to say about it: progress, refusals, failures. */
export function complain(line: string): void {
  process.stderr.write(`${line}\n`);
}
