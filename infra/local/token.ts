/** `npm run --silent token -- NAME`: prints a bearer token for the local service. */
import { parseArgs } from 'node:util';
import { UnsecuredJWT } from 'jose';
import { print, printError } from './output.ts';

/**
 * Who signs the local tokens and for whom; serverless.yml's authorizer carries the same two.
 * serverless-offline checks both and the expiry, and no signature.
 */
const LOCAL_ISSUER = 'https://issuer.local.backstop.example/';
const LOCAL_AUDIENCE = 'backstop-local';

/** A token whose `sub` is the principal. Unsigned: only the local service takes it. */
export function localToken(name: string): string {
  return new UnsecuredJWT({})
    .setSubject(name)
    .setIssuer(LOCAL_ISSUER)
    .setAudience(LOCAL_AUDIENCE)
    .setIssuedAt()
    .setExpirationTime('12h')
    .encode();
}

function parseCliOptions(): string | undefined {
  try {
    const { positionals } = parseArgs({ allowPositionals: true });
    const [name, ...more] = positionals;
    return more.length === 0 && name !== '' ? name : undefined;
  } catch {
    return undefined;
  }
}

if (import.meta.main) {
  const name = parseCliOptions();
  if (name === undefined) {
    printError('usage: npm run --silent token -- NAME    (for example alice or bob)');
    process.exitCode = 2;
  } else {
    print(localToken(name));
  }
}
