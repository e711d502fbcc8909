import { expect, test } from 'vitest';
import { servicesInContainers } from '../support/sources.ts';

const given = {
  DATABASE_URL: 'postgres://db.example/mine',
  REDIS_URL: 'redis://r.example',
  DYNAMODB_ENDPOINT: 'http://d.example',
};

test('nothing comes from a container without SERVICES, or with an empty one', () => {
  expect(servicesInContainers({})).toEqual([]);
  expect(servicesInContainers({ SERVICES: '' })).toEqual([]);
  expect(servicesInContainers(given)).toEqual([]);
});

test('everything comes from a container with SERVICES=docker, but for what has an address already', () => {
  expect(servicesInContainers({ SERVICES: 'docker' })).toEqual(['postgres', 'redis', 'dynamodb']);
  const { DATABASE_URL, REDIS_URL, DYNAMODB_ENDPOINT } = given;
  const besides = (more: Record<string, string>) =>
    servicesInContainers({ SERVICES: 'docker', ...more });
  expect(besides({ DATABASE_URL })).toEqual(['redis', 'dynamodb']);
  expect(besides({ REDIS_URL })).toEqual(['postgres', 'dynamodb']);
  expect(besides({ DYNAMODB_ENDPOINT })).toEqual(['postgres', 'redis']);
  expect(besides(given)).toEqual([]);
});

test('an empty address counts as none', () => {
  expect(servicesInContainers({ SERVICES: 'docker', ...given, REDIS_URL: '' })).toEqual(['redis']);
});

test('any other value is refused, with what to set, also when nothing is left to start', () => {
  for (const SERVICES of ['podman', 'Docker', 'docker ', 'dynamodb,s3']) {
    const refusal = `SERVICES is "${SERVICES}": the tests know the servers of this machine and those in containers. Set it to "docker", or leave it out`;
    expect(() => servicesInContainers({ SERVICES })).toThrow(refusal);
    expect(() => servicesInContainers({ SERVICES, ...given })).toThrow(refusal);
  }
});
