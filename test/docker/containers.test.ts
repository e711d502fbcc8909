import { expect, inject, test } from 'vitest';
import { environment } from '../../infra/local/environment.ts';
import { onLoopback } from '../support/containers.ts';

test('every port that a container exposes is published on loopback, whatever was asked for', () => {
  const asked = {
    '5432/tcp': [{ HostPort: '0' }],
    '80/tcp': [{ HostIp: '0.0.0.0', HostPort: '8' }],
  };
  const loopback = [{ HostIp: '127.0.0.1', HostPort: '0' }];
  expect(onLoopback(asked)).toEqual({ '5432/tcp': loopback, '80/tcp': loopback });
  expect(onLoopback(undefined)).toEqual({});
});

// Where they are containers; elsewhere there is nothing to look at.
if (environment()['SERVICES'] === 'docker') {
  test('the containers of the tests listen for this machine alone', async () => {
    const { getContainerRuntimeClient } = await import('testcontainers');
    const client = await getContainerRuntimeClient();
    const urls = [inject('adminUrl'), inject('redisUrl'), inject('dynamodbUrl')];
    const ours = urls.map((url) => Number(new URL(url).port));
    const published = (await client.container.list())
      .flatMap(({ Ports }) => Ports)
      .filter(({ PublicPort = 0 }) => ours.includes(PublicPort));
    expect(published.length).toBeGreaterThan(0);
    expect(published.map(({ IP }) => IP)).toEqual(published.map(() => '127.0.0.1'));
  });
}
