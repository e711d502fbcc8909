import { expect, test } from 'vitest';
import type { Environment } from '../../shared/service/settings/component.ts';
import { readSettings } from '../../shared/service/settings.ts';

const load = (environment: Environment) => readSettings('migration', environment).migration;

const RIGHT = {
  MIGRATE_DATABASE_URL: 'postgres://db.example:5432/backstop?sslmode=verify-full',
  MIGRATE_SECRET_ARN: 'arn:aws:secretsmanager:eu-central-1:123456789012:secret:master',
};

test('both settings are read', () => {
  expect(load(RIGHT)).toEqual({
    databaseUrl: RIGHT.MIGRATE_DATABASE_URL,
    secretArn: RIGHT.MIGRATE_SECRET_ARN,
  });
});

test('every missing setting is named, with what to set', () => {
  const reading = () => load({});
  expect(reading).toThrow(/MIGRATE_DATABASE_URL is not set: .*postgres:\/\/HOST/);
  expect(reading).toThrow(/MIGRATE_SECRET_ARN is not set: .*ARN/);
});

test.each([
  ['MIGRATE_DATABASE_URL', 'postgres://admin:hidden@db.example/backstop'],
  ['MIGRATE_DATABASE_URL', 'hidden'],
  ['MIGRATE_DATABASE_URL', 'mysql://hidden'],
  ['MIGRATE_SECRET_ARN', 'hidden'],
])('%s=%s is refused, and not shown', (name, value) => {
  const reading = () => load({ ...RIGHT, [name]: value });
  expect(reading).toThrow(new RegExp(`^${name} .*(set it to|must be)`, 'i'));
  expect(reading).not.toThrow('hidden');
});
