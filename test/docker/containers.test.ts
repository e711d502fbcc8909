import { expect, inject, test } from 'vitest';
import { environment } from '../../infra/local/environment.ts';

test.runIf(environment()['SERVICES'] === 'docker')(
  'the containers of the tests listen for this machine alone',
  async () => {
    const { getContainerRuntimeClient } = await import('testcontainers');
    const client = await getContainerRuntimeClient();
    const urls = [inject('adminUrl'), inject('redisUrl'), inject('dynamodbUrl')];
    const ours = urls.map((url) => Number(new URL(url).port));
    const published = (await client.container.list())
      .flatMap(({ Ports }) => Ports)
      .filter(({ PublicPort = 0 }) => ours.includes(PublicPort));
    expect(published.length).toBeGreaterThan(0);
    expect(published.map(({ IP }) => IP)).toEqual(published.map(() => '127.0.0.1'));
  },
);
