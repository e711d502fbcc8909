/** Stands in for a parameter that has no default: packaging fails with a sentence that names it. */
const missing = (name, meaning, example) => () => {
  const sentence = `The parameter ${name} is not set for this stage. It says ${meaning}: write it under params of serverless.yml, or pass --param="${name}=${example}" (docs/deploy.md, step 2).`;
  // serverless prints the stack, which says nothing more.
  throw Object.assign(new Error(sentence), { stack: sentence });
};

module.exports = {
  jwtIssuer: missing('jwtIssuer', "who signs the callers' tokens", 'https://…'),
  jwtAudience: missing('jwtAudience', "for whom the callers' tokens are", 'the-client-id'),
};
