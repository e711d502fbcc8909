/** `npm run --silent token -- NAME`: prints a bearer token for the local service. */
import { parseArgs } from 'node:util';
import { UnsecuredJWT } from 'jose';
import { localAudience, localIssuer } from './issuer.ts';
import { complain, print } from './output.ts';

/** A token whose `sub` is the principal. Unsigned: only the local service takes it. */
export function localToken(name: string): string {
  return new UnsecuredJWT({})
    .setSubject(name)
    .setIssuer(localIssuer)
    .setAudience(localAudience)
    .setIssuedAt()
    .setExpirationTime('12h')
    .encode();
}

function nameFromArguments(): string | undefined {
  try {
    const { positionals } = parseArgs({ allowPositionals: true });
    const [name, ...more] = positionals;
    return more.length === 0 && name !== '' ? name : undefined;
  } catch {
    return undefined;
  }
}

if (import.meta.main) {
  const name = nameFromArguments();
  if (name === undefined) {
    complain('usage: npm run --silent token -- NAME    (for example alice or bob)');
    process.exitCode = 2;
  } else {
    print(localToken(name));
  }
}
