/** One value for all migrations: when it changes, CloudFormation calls functions/operations/migrate.ts again. */
const { createHash } = require('node:crypto');
const { readdirSync, readFileSync } = require('node:fs');
const { join } = require('node:path');

const directory = join(__dirname, '..', 'shared', 'postgres', 'migrations');

module.exports = () => {
  const hash = createHash('sha256');
  for (const name of readdirSync(directory).sort()) {
    hash
      .update(`${name}\0`)
      .update(readFileSync(join(directory, name)))
      .update('\0');
  }
  return hash.digest('hex');
};
