import { expect, test } from 'vitest';
import { loadMigrationSettings } from '../../shared/service/migration/settings.ts';

const RIGHT = {
  MIGRATE_DATABASE_URL: 'postgres://db.example:5432/backstop?sslmode=verify-full',
  MIGRATE_SECRET_ARN: 'arn:aws:secretsmanager:eu-central-1:123456789012:secret:master',
};

test('both settings are read', () => {
  expect(loadMigrationSettings(RIGHT)).toEqual({
    databaseUrl: RIGHT.MIGRATE_DATABASE_URL,
    secretArn: RIGHT.MIGRATE_SECRET_ARN,
  });
});

test('every missing setting is named, with what to set', () => {
  const reading = () => loadMigrationSettings({});
  expect(reading).toThrow(/MIGRATE_DATABASE_URL is not set: .*postgres:\/\/HOST/);
  expect(reading).toThrow(/MIGRATE_SECRET_ARN is not set: .*ARN/);
});

test.each([
  ['MIGRATE_DATABASE_URL', 'postgres://admin:hidden@db.example/backstop'],
  ['MIGRATE_DATABASE_URL', 'hidden'],
  ['MIGRATE_SECRET_ARN', 'hidden'],
])('%s=%s is refused, and not shown', (name, value) => {
  const reading = () => loadMigrationSettings({ ...RIGHT, [name]: value });
  expect(reading).toThrow(`${name} cannot be used: `);
  expect(reading).not.toThrow('hidden');
});
