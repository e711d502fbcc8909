/**
 * Certificates for the servers of a test, made on the spot: X.509 is a few nested lists in
 * DER, Node signs them, and so nothing needs an openssl on PATH or a key in the repository.
 */
import { generateKeyPairSync, type KeyObject, randomBytes, sign } from 'node:crypto';

export interface Authority {
  /** Of the authority itself, in PEM. */
  readonly certificate: string;
  /** A server's, in PEM, for these DNS names. */
  issue(...names: readonly string[]): { readonly certificate: string; readonly key: string };
}

export function createAuthority(name: string): Authority {
  const own = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const isAuthority = extension(OID.basicConstraints, sequence(der(0x01, Buffer.of(0xff))));
  return {
    certificate: certify(name, own.publicKey, name, own.privateKey, isAuthority),
    issue: (...names) => {
      const server = generateKeyPairSync('ec', { namedCurve: 'P-256' });
      const dnsNames = names.map((each) => der(0x82, Buffer.from(each)));
      const alternatives = extension(OID.subjectAltName, sequence(...dnsNames));
      return {
        certificate: certify('server', server.publicKey, name, own.privateKey, alternatives),
        key: server.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
      };
    },
  };
}

const OID = {
  ecdsaWithSha256: Buffer.from('2a8648ce3d040302', 'hex'),
  commonName: Buffer.from('550403', 'hex'),
  subjectAltName: Buffer.from('551d11', 'hex'),
  basicConstraints: Buffer.from('551d13', 'hex'),
};

/** RFC 5280, 4.1: what is certified, by which algorithm, and the signature. */
function certify(
  subject: string,
  subjectKey: KeyObject,
  issuer: string,
  issuerKey: KeyObject,
  extensions: Buffer,
): string {
  const algorithm = sequence(der(0x06, OID.ecdsaWithSha256));
  const time = (shiftMs: number) => {
    const text = new Date(Date.now() + shiftMs).toISOString();
    return der(0x17, Buffer.from(text.replace(/[-:T]|\.\d+/g, '').slice(2)));
  };
  const certified = sequence(
    der(0xa0, der(0x02, Buffer.of(2))), // Version 3.
    der(0x02, Buffer.concat([Buffer.of(1), randomBytes(8)])),
    algorithm,
    nameOf(issuer),
    sequence(time(-3_600_000), time(86_400_000)),
    nameOf(subject),
    subjectKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(extensions)),
  );
  const signature = sign('sha256', certified, issuerKey);
  const whole = sequence(certified, algorithm, der(0x03, Buffer.of(0), signature));
  const lines = whole.toString('base64').match(/.{1,64}/g) ?? [];
  return ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n');
}

const nameOf = (name: string) =>
  sequence(der(0x31, sequence(der(0x06, OID.commonName), der(0x0c, Buffer.from(name)))));

const extension = (id: Buffer, value: Buffer) => sequence(der(0x06, id), der(0x04, value));

const sequence = (...parts: readonly Buffer[]) => der(0x30, ...parts);

function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const { length } = Buffer.concat(parts);
  const long = length < 0x80 ? [] : [...Buffer.from(length.toString(16).padStart(4, '0'), 'hex')];
  const lengthBytes = long.length === 0 ? [length] : [0x80 | long.length, ...long];
  return Buffer.concat([Buffer.of(tag, ...lengthBytes), ...parts]);
}
