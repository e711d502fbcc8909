/** One value for all migrations: when it changes, CloudFormation calls functions/operations/migrate.ts again. */
const { createHash } = require('node:crypto');
const { readdirSync, readFileSync } = require('node:fs');
const { join } = require('node:path');

/** The library's and the service's own. */
const FOLDERS = ['shared/postgres/migrations', 'functions/migrations'];

module.exports = () => {
  const hash = createHash('sha256');
  for (const folder of FOLDERS) {
    const directory = join(__dirname, '..', folder);
    for (const name of readdirSync(directory).sort()) {
      hash
        .update(`${folder}/${name}\0`)
        .update(readFileSync(join(directory, name)))
        .update('\0');
    }
  }
  return hash.digest('hex');
};
