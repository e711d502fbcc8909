/**
 * Who signs the local tokens and for whom; serverless.yml's authorizer carries the same two.
 * serverless-offline checks both and the expiry, and no signature.
 */
export const LOCAL_ISSUER = 'https://issuer.local.backstop.example/';
export const LOCAL_AUDIENCE = 'backstop-local';
