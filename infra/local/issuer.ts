/**
 * Who signs the local tokens and for whom; serverless.yml's authorizer carries the same two.
 * serverless-offline checks both and the expiry, and no signature.
 */
export const localIssuer = 'https://issuer.local.backstop.example/';
export const localAudience = 'backstop-local';
