/** The tokens that stand in for passwords, held against what AWS's own signer makes. */
import { createHash, createHmac } from 'node:crypto';
import { Sha256 } from '@smithy/core/checksum';
import { HttpRequest } from '@smithy/core/protocols';
import { SignatureV4 } from '@smithy/signature-v4';
import fc from 'fast-check';
import { afterEach, expect, onTestFinished, test, vi } from 'vitest';
import { rdsToken } from '../../shared/postgres/rds-token.ts';
import { type CacheTokenRequest, cacheToken } from '../../shared/redis/elasticache-token.ts';

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllEnvs();
});

const NOW = Date.UTC(2026, 10, 30, 7, 8, 9, 999);

const REQUEST: CacheTokenRequest = {
  user: 'backstop-api',
  cacheName: 'Backstop-Dev',
  region: 'eu-central-1',
  credentials: { accessKeyId: 'AKIDEXAMPLE', secretAccessKey: 'secret', sessionToken: undefined },
  nowMs: NOW,
};

test('a cache token is the URL of a connect request, without its scheme', () => {
  const token = cacheToken(REQUEST);
  expect(token).toMatch(/^backstop-dev\/\?/);
  const { searchParams } = new URL(`https://${token}`);
  expect(Object.fromEntries(searchParams)).toEqual({
    Action: 'connect',
    User: 'backstop-api',
    ResourceType: 'ServerlessCache',
    'X-Amz-Algorithm': 'AWS4-HMAC-SHA256',
    'X-Amz-Credential': 'AKIDEXAMPLE/20261130/eu-central-1/elasticache/aws4_request',
    'X-Amz-Date': '20261130T070809Z',
    'X-Amz-Expires': '900',
    'X-Amz-SignedHeaders': 'host',
    'X-Amz-Signature': expect.stringMatching(/^[0-9a-f]{64}$/),
  });
});

async function signedByAws(request: CacheTokenRequest): Promise<URLSearchParams> {
  const { sessionToken, ...keys } = request.credentials;
  const signer = new SignatureV4({
    service: 'elasticache',
    region: request.region,
    credentials: { ...keys, ...(sessionToken && { sessionToken }) },
    sha256: Sha256,
  });
  const hostname = request.cacheName.toLowerCase();
  const connect = new HttpRequest({
    method: 'GET',
    protocol: 'https:',
    hostname,
    path: '/',
    query: { Action: 'connect', User: request.user, ResourceType: 'ServerlessCache' },
    headers: { host: hostname },
  });
  const signingDate = new Date(request.nowMs);
  const { query } = await signer.presign(connect, { expiresIn: 900, signingDate });
  return new URLSearchParams(query as Record<string, string>);
}

test("a cache token is what AWS's signer makes, for any names and keys", async () => {
  const text = fc.string({ minLength: 1, unit: 'grapheme-ascii' });
  const requests = fc.record<CacheTokenRequest>({
    user: text,
    cacheName: fc.stringMatching(/^[A-Za-z][A-Za-z0-9-]{0,39}$/),
    region: fc.constantFrom('eu-central-1', 'us-gov-west-1'),
    credentials: fc.record({
      accessKeyId: fc.stringMatching(/^[A-Z0-9]{16,20}$/),
      secretAccessKey: text,
      sessionToken: fc.option(text, { nil: undefined }),
    }),
    nowMs: fc.integer({ min: Date.UTC(2020), max: Date.UTC(2040) }),
  });
  await fc.assert(
    fc.asyncProperty(requests, async (request) => {
      const ours = new URL(`https://${cacheToken(request)}`).searchParams;
      const theirs = await signedByAws(request);
      expect(Object.fromEntries(ours)).toEqual(Object.fromEntries(theirs));
    }),
  );
});

const DATABASE_URL = 'postgres://backstop_api@db.example:6543/backstop?sslmode=verify-full';

async function databaseToken(nowMs: number, url = DATABASE_URL): Promise<string> {
  vi.useFakeTimers({ toFake: ['Date'], now: nowMs });
  vi.stubEnv('AWS_ACCESS_KEY_ID', 'AKIDEXAMPLE');
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'secret');
  vi.stubEnv('AWS_SESSION_TOKEN', '');
  onTestFinished(() => void vi.useRealTimers());
  return rdsToken(url, 'eu-central-1')();
}

/** By AWS's published steps (Signature Version 4, query string), and nothing of its code. */
function signatureOf(token: string, secret: string, service: string): string {
  const url = new URL(`https://${token}`);
  url.searchParams.delete('X-Amz-Signature');
  url.searchParams.sort();
  const time = url.searchParams.get('X-Amz-Date') ?? '';
  const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
  const hmac = (key: string | Buffer, text: string) =>
    createHmac('sha256', key).update(text).digest();
  const canonical = `GET\n/\n${url.search.slice(1)}\nhost:${url.host}\n\nhost\n${sha256('')}`;
  const day = time.slice(0, 8);
  const scope = `${day}/eu-central-1/${service}/aws4_request`;
  const toSign = `AWS4-HMAC-SHA256\n${time}\n${scope}\n${sha256(canonical)}`;
  const dayKey = hmac(`AWS4${secret}`, day);
  const key = hmac(hmac(hmac(dayKey, 'eu-central-1'), service), 'aws4_request');
  return hmac(key, toSign).toString('hex');
}

test('a database token is signed for the user, the host and the port of the URL', async () => {
  const token = await databaseToken(NOW);
  expect(token).toMatch(/^db\.example:6543\/\?/);
  const { searchParams } = new URL(`https://${token}`);
  expect(Object.fromEntries(searchParams)).toMatchObject({
    Action: 'connect',
    DBUser: 'backstop_api',
    'X-Amz-Credential': 'AKIDEXAMPLE/20261130/eu-central-1/rds-db/aws4_request',
    'X-Amz-Date': '20261130T070809Z',
    'X-Amz-Expires': '900',
  });
  expect(searchParams.get('X-Amz-Signature')).toBe(signatureOf(token, 'secret', 'rds-db'));
});

test('a cache token is signed by the published steps too', () => {
  const token = cacheToken(REQUEST);
  const { searchParams } = new URL(`https://${token}`);
  expect(searchParams.get('X-Amz-Signature')).toBe(signatureOf(token, 'secret', 'elasticache'));
});

test('a URL without a port means 5432, and each token is of its own time', async () => {
  const url = 'postgres://backstop_api@db.example/backstop?sslmode=verify-full';
  const first = await databaseToken(NOW, url);
  expect(first).toMatch(/^db\.example:5432\/\?/);
  expect(await databaseToken(NOW + 1000, url)).not.toBe(first);
});
