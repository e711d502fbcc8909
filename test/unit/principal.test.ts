import { describe, expect, test } from 'vitest';
import { readPrincipal } from '../../shared/http/principal.ts';
import type { HttpEvent } from '../../shared/http/request.ts';
import { httpEvent } from '../support/requests.ts';

const ARN = 'arn:aws:iam::123456789012:user/alice';

const principalOf = (requestContext: unknown, aliases?: Record<string, string>) =>
  readPrincipal({ requestContext } as HttpEvent, aliases);

const ofSub = (sub: unknown) => principalOf({ authorizer: { jwt: { claims: { sub } } } });

describe('the principal by authorizer', () => {
  test.each([
    [
      'JWT, payload 2.0',
      { authorizer: { jwt: { claims: { sub: 'alice' }, scopes: null } } },
      'alice',
    ],
    ['Lambda, payload 2.0', { authorizer: { lambda: { principalId: 'alice' } } }, 'alice'],
    ['IAM, payload 2.0', { authorizer: { iam: { userArn: ARN, userId: 'AIDA' } } }, ARN],
    ['Cognito, payload 1.0', { authorizer: { claims: { sub: 'alice' } }, identity: {} }, 'alice'],
    ['Lambda, payload 1.0', { authorizer: { principalId: 'alice' }, identity: {} }, 'alice'],
    ['IAM, payload 1.0', { authorizer: null, identity: { userArn: ARN } }, ARN],
  ])('the principal is found for %s', (_, context, principal) => {
    expect(principalOf(context)).toBe(principal);
  });

  test.each([
    undefined,
    null,
    {},
    { authorizer: null },
    { authorizer: {} },
    { authorizer: { jwt: null } },
    { authorizer: { jwt: {} } },
    { authorizer: { jwt: { claims: null } } },
    { authorizer: { jwt: { claims: {} } } },
    { authorizer: { lambda: null } },
    { authorizer: { lambda: {} } },
    { authorizer: { iam: null } },
    { authorizer: { iam: { userArn: null } } },
    { authorizer: { claims: null } },
    { authorizer: { principalId: null } },
    { identity: null },
    { identity: { userArn: null, sourceIp: '127.0.0.1' } },
  ])('%j proves nobody', (context) => {
    expect(principalOf(context)).toBeUndefined();
  });

  test('a token without a subject does not fall back on something else', () => {
    const authorizer = { jwt: { claims: { iss: 'x' } }, principalId: 'mallory' };
    expect(principalOf({ authorizer, identity: { userArn: ARN } })).toBeUndefined();
  });
});

describe('the users of a Cognito identity pool share a role and its session (C114, library S6)', () => {
  const SHARED = 'arn:aws:sts::123456789012:assumed-role/App_Auth/CognitoIdentityCredentials';
  const POOL = 'eu-central-1:pool';
  const v2 = (cognitoIdentity: unknown) =>
    principalOf({ authorizer: { iam: { userArn: SHARED, cognitoIdentity } } });
  const v1 = (cognitoIdentityId: unknown, cognitoIdentityPoolId: unknown = POOL) =>
    principalOf({ identity: { userArn: SHARED, cognitoIdentityId, cognitoIdentityPoolId } });

  test('each user is a principal of his own', () => {
    for (const id of ['eu-central-1:alice', 'eu-central-1:bob']) {
      expect(v2({ amr: ['authenticated'], identityId: id, identityPoolId: POOL })).toBe(id);
      expect(v1(id)).toBe(id);
      expect(v1(id, null)).toBe(id);
    }
  });

  test('a user without an identity id proves nobody', () => {
    expect(v2({ identityPoolId: POOL })).toBeUndefined();
    expect(v2({ identityId: '' })).toBeUndefined();
    expect(v2(null)).toBeUndefined();
    expect(v1(null)).toBeUndefined();
    expect(v1(7)).toBeUndefined();
    expect(v1(null, null)).toBeUndefined();
  });

  test('an assumed role of another kind is named by its session', () => {
    const userArn = 'arn:aws:sts::123456789012:assumed-role/worker/task-1';
    expect(principalOf({ authorizer: { iam: { userArn, cognitoIdentity: null } } })).toBe(userArn);
    expect(principalOf({ identity: { userArn, cognitoIdentityId: null } })).toBe(userArn);
  });
});

test('what the caller says of itself proves nothing', () => {
  const event = httpEvent({
    body: { sub: 'alice', userId: 'alice', principal: 'alice' },
    headers: { 'x-user-id': 'alice', authorization: 'Bearer e30.e30.' },
    query: 'sub=alice',
  });
  expect(readPrincipal(event)).toBeUndefined();
});

describe('tokens of several issuers', () => {
  const aliases = { 'https://one.example/': 'one', 'https://two.example/': 'two' };
  const of = (claims: object) => principalOf({ authorizer: { jwt: { claims } } }, aliases);

  test('the same subject of two issuers is two principals', () => {
    expect(of({ iss: 'https://one.example/', sub: 'alice' })).toBe('one|alice');
    expect(of({ iss: 'https://two.example/', sub: 'alice' })).toBe('two|alice');
  });

  test('the issuer counts in a payload 1.0 as well', () => {
    const claims = { iss: 'https://two.example/', sub: 'a|b' };
    expect(principalOf({ authorizer: { claims } }, aliases)).toBe('two|a|b');
  });

  test.each([
    'https://three.example/',
    'https://one.example',
    'HTTPS://ONE.EXAMPLE/',
    'toString',
    '__proto__',
    '',
    undefined,
    7,
    ['https://one.example/'],
  ])('the issuer %j is unknown and proves nobody', (iss) => {
    expect(of({ iss, sub: 'alice' })).toBeUndefined();
  });

  test('an issuer without a subject proves nobody', () => {
    expect(of({ iss: 'https://one.example/' })).toBeUndefined();
    expect(of({ iss: 'https://one.example/', sub: '' })).toBeUndefined();
  });
});

test('with one issuer the subject alone is the principal', () => {
  const claims = { iss: 'https://one.example/', sub: 'alice' };
  expect(principalOf({ authorizer: { jwt: { claims } } })).toBe('alice');
});

describe('a principal that no store could keep proves nobody', () => {
  test.each([
    ['empty', ''],
    ['a NUL', 'a\0b'],
    ['a high surrogate alone', 'a\ud800'],
    ['a low surrogate alone', '\udc00a'],
    ['1,025 bytes', 'a'.repeat(1025)],
    ['1,026 bytes in 513 characters', 'é'.repeat(513)],
    ['a number', 7],
    ['an object', { toString: () => 'alice' }],
    ['a list', ['alice']],
    ['true', true],
  ])('a subject proves nobody when it is %s', (_, sub) => {
    expect(ofSub(sub)).toBeUndefined();
  });

  test.each(['a'.repeat(1024), 'é'.repeat(512), '😀', 't1:a', 'a b', 'auth0|123', '%41'])(
    'the subject %j is a principal',
    (sub) => {
      expect(ofSub(sub)).toBe(sub);
    },
  );
});
