import type { HttpEvent } from './request.ts';

/**
 * Who the authorizer proved the caller to be, or undefined when it proved
 * nothing. Never a field of the body or a header: those are the caller's claims.
 *
 * With one configured issuer a JWT's `sub` is the principal; with several, a
 * `sub` is unique only within its issuer, so the principal is `alias|sub`
 * (`aliases`: issuer URL → alias). A token of an issuer without an alias proves
 * nothing then.
 */
export function readPrincipal(
  event: HttpEvent,
  aliases: Readonly<Record<string, string>> = {},
): string | undefined {
  const context = event.requestContext as unknown as RequestContext | null | undefined;
  const claims = context?.authorizer?.jwt?.claims ?? context?.authorizer?.claims;
  if (claims) return jwtPrincipal(claims, aliases);
  return (
    text(context?.authorizer?.lambda?.['principalId']) ??
    text(context?.authorizer?.principalId) ??
    iamPrincipal(context)
  );
}

/**
 * An IAM user or a role's session is named by its ARN. The users of a Cognito identity pool
 * all share one session of one role, so that each is named by his identity id, and by
 * nothing where there is none.
 */
function iamPrincipal(context: RequestContext | null | undefined): string | undefined {
  const { iam } = context?.authorizer ?? {};
  const { identity } = context ?? {};
  if (iam?.cognitoIdentity) return text(iam.cognitoIdentity.identityId);
  if (identity?.cognitoIdentityPoolId || identity?.cognitoIdentityId) {
    return text(identity.cognitoIdentityId);
  }
  const arn = text(iam?.userArn) ?? text(identity?.userArn);
  return arn?.endsWith('/CognitoIdentityCredentials') ? undefined : arn;
}

interface RequestContext {
  readonly authorizer?: {
    /** Payload 2.0, JWT authorizer. */
    readonly jwt?: { readonly claims?: Claims };
    /** Payload 2.0, Lambda authorizer: its `context` object. */
    readonly lambda?: Readonly<Record<string, unknown>> | null;
    /** Payload 2.0, IAM. */
    readonly iam?: {
      readonly userArn?: unknown;
      readonly cognitoIdentity?: { readonly identityId?: unknown } | null;
    } | null;
    /** Payload 1.0, Cognito. */
    readonly claims?: Claims;
    /** Payload 1.0, Lambda authorizer. */
    readonly principalId?: unknown;
  } | null;
  /** Payload 1.0, IAM. */
  readonly identity?: {
    readonly userArn?: unknown;
    readonly cognitoIdentityId?: unknown;
    readonly cognitoIdentityPoolId?: unknown;
  } | null;
}

type Claims = Readonly<Record<string, unknown>>;

function jwtPrincipal(claims: Claims, aliases: Readonly<Record<string, string>>) {
  const sub = text(claims['sub']);
  if (sub === undefined || Object.keys(aliases).length === 0) return sub;
  const issuer = text(claims['iss']);
  const alias =
    issuer !== undefined && Object.hasOwn(aliases, issuer) ? aliases[issuer] : undefined;
  return alias === undefined ? undefined : `${alias}|${sub}`;
}

/**
 * A principal is stored as text and indexed beside the key: one that Postgres
 * could not store (a NUL, half a surrogate pair, longer than an index entry
 * allows) proves nobody, like an empty one.
 */
function text(value: unknown): string | undefined {
  if (typeof value !== 'string' || value === '') return undefined;
  const isStorable =
    !value.includes('\0') &&
    value.isWellFormed() &&
    Buffer.byteLength(value) <= PRINCIPAL_BYTES_MAX;
  return isStorable ? value : undefined;
}

/** A btree entry holds 2,704 bytes; with a key of 255 this leaves room to spare. */
const PRINCIPAL_BYTES_MAX = 1024;
