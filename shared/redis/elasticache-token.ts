/**
 * What an ElastiCache user with IAM authentication signs in with, in place of a password:
 * a `connect` request that is signed and never sent.
 * (docs.aws.amazon.com/AmazonElastiCache/latest/dg/auth-iam.html)
 *
 * Signed here and not by the AWS SDK, since ioredis asks for a password when it connects
 * and waits for none, and the SDK's signer is asynchronous. So a token is never older than
 * its connection, also in an environment that thaws after hours. The tests hold it against
 * the SDK's.
 */
import { createHash, createHmac } from 'node:crypto';

export interface AwsCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Of a role; a user's long-lived keys have none. */
  readonly sessionToken: string | undefined;
}

export interface CacheTokenRequest {
  readonly user: string;
  /** Of the ElastiCache Serverless cache, as it was created. */
  readonly cacheName: string;
  readonly region: string;
  readonly credentials: AwsCredentials;
  readonly nowMs: number;
}

const SERVICE = 'elasticache';
/** The longest that ElastiCache takes. */
const VALID_SECONDS = 900;

export function cacheToken(request: CacheTokenRequest): string {
  const { user, region, credentials } = request;
  const host = request.cacheName.toLowerCase();
  const time = new Date(request.nowMs).toISOString().replace(/[:-]|\.\d{3}/g, '');
  const scope = `${time.slice(0, 8)}/${region}/${SERVICE}/aws4_request`;
  const query = canonicalQuery({
    Action: 'connect',
    ResourceType: 'ServerlessCache',
    User: user,
    'X-Amz-Algorithm': 'AWS4-HMAC-SHA256',
    'X-Amz-Credential': `${credentials.accessKeyId}/${scope}`,
    'X-Amz-Date': time,
    'X-Amz-Expires': String(VALID_SECONDS),
    ...(credentials.sessionToken && { 'X-Amz-Security-Token': credentials.sessionToken }),
    'X-Amz-SignedHeaders': 'host',
  });
  const canonical = ['GET', '/', query, `host:${host}`, '', 'host', sha256('')].join('\n');
  const toSign = ['AWS4-HMAC-SHA256', time, scope, sha256(canonical)].join('\n');
  const key = scope.split('/').reduce<string | Buffer>(hmac, `AWS4${credentials.secretAccessKey}`);
  return `${host}/?${query}&X-Amz-Signature=${hmac(key, toSign).toString('hex')}`;
}

/** In the order of the names' code units, everything encoded but RFC 3986's unreserved characters. */
function canonicalQuery(parameters: Record<string, string>): string {
  const names = Object.keys(parameters).sort();
  return names.map((name) => `${encode(name)}=${encode(parameters[name] ?? '')}`).join('&');
}

const encode = (text: string): string =>
  encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const hmac = (key: string | Buffer, text: string): Buffer =>
  createHmac('sha256', key).update(text).digest();
