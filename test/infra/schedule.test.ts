/** The purge's schedule, deployed and local, and how long functions may take. */
import { beforeAll, expect, test } from 'vitest';
import { deployedFunctions } from './support/functions.ts';
import { packagedTemplate } from './support/package-service.ts';
import { ofType, propertiesOf, type Template } from './support/template.ts';

interface LambdaFunction {
  readonly Timeout: number;
  readonly ReservedConcurrentExecutions?: number;
}

beforeAll(async () => {
  await Promise.all((['own', 'existing', 'local'] as const).map(packagedTemplate));
});

const functions = deployedFunctions();

const QUEUE = { 'Fn::GetAtt': ['PurgeDeadLetters', 'Arn'] };

test.for([
  ['own', 2],
  ['existing', 3],
] as const)(
  'the template of a network that is %s starts %d runs of the purge once a minute, without numbers, retries or losses',
  async ([variant, workers]) => {
    const template = await packagedTemplate(variant);
    const schedules = ofType(template, 'AWS::Scheduler::Schedule').map(([, one]) => one.Properties);
    expect(schedules).toHaveLength(workers);
    expect(new Set(schedules.map((schedule) => schedule?.['Name'])).size).toBe(workers);
    for (const schedule of schedules) {
      expect(schedule).toMatchObject({
        ScheduleExpression: 'rate(1 minute)',
        FlexibleTimeWindow: { Mode: 'OFF' },
      });
      expect(schedule?.['Target']).toEqual({
        Arn: { 'Fn::GetAtt': ['PurgeLambdaFunction', 'Arn'] },
        RoleArn: { 'Fn::GetAtt': ['PurgeScheduleRole', 'Arn'] },
        RetryPolicy: { MaximumRetryAttempts: 0, MaximumEventAgeInSeconds: 60 },
        DeadLetterConfig: { Arn: QUEUE },
      });
    }
    const purge = propertiesOf<LambdaFunction>(template, 'PurgeLambdaFunction');
    expect(purge.ReservedConcurrentExecutions).toBe(workers);
    expect(purge.Timeout).toBeLessThan(60);
  },
);

test('nothing else starts the deployed purge', async () => {
  const template = await packagedTemplate('own');
  expect(ofType(template, 'AWS::Events::Rule')).toEqual([]);
  expect(ofType(template, 'AWS::Lambda::EventSourceMapping')).toEqual([]);
});

test('a run that Lambda gives up ends in the same queue, which is encrypted', async () => {
  const template = await packagedTemplate('own');
  expect(propertiesOf(template, 'PurgeInvocations')).toMatchObject({
    FunctionName: { Ref: 'PurgeLambdaFunction' },
    MaximumRetryAttempts: 0,
    DestinationConfig: { OnFailure: { Destination: QUEUE } },
  });
  expect(propertiesOf(template, 'PurgeDeadLetters')).toMatchObject({ SqsManagedSseEnabled: true });
  const may = JSON.stringify(propertiesOf(template, 'PurgeScheduleRole'));
  expect(may).toContain(
    '"Action":"lambda:InvokeFunction","Resource":{"Fn::GetAtt":["PurgeLambdaFunction","Arn"]}',
  );
  expect(may).toContain(
    '"Action":"sqs:SendMessage","Resource":{"Fn::GetAtt":["PurgeDeadLetters","Arn"]}',
  );
});

test('the local schedule is one event of the function itself, which is all that serverless-offline fires', async () => {
  const template = await packagedTemplate('local');
  const rules = ofType(template, 'AWS::Events::Rule').map(([, one]) => one.Properties);
  expect(rules).toMatchObject([{ ScheduleExpression: 'rate(1 minute)' }]);
});

test('what answers the HTTP API ends before that gives up after 30 s, and the migration may take its time', async () => {
  const template = await packagedTemplate('own');
  const answering = functionsBehindApi(template);
  expect(answering).toHaveLength(functions.filter(({ isBehindApi }) => isBehindApi).length);
  for (const id of answering) {
    const { Timeout } = propertiesOf<LambdaFunction>(template, id);
    expect([id, Timeout <= 28]).toEqual([id, true]);
  }
  const migrate = propertiesOf<LambdaFunction>(template, 'MigrateLambdaFunction');
  const { ServiceTimeout } = propertiesOf<{ ServiceTimeout: number }>(template, 'Migrations');
  expect(ServiceTimeout).toBeGreaterThan(migrate.Timeout);
});

test('every function on Postgres waits for the migrations', async () => {
  const template = await packagedTemplate('own');
  const waiting = ofType(template, 'AWS::Lambda::Function')
    .filter(([, { DependsOn = [] }]) => DependsOn.includes('Migrations'))
    .map(([id]) => id.replace('LambdaFunction', ''));
  const onPostgres = functions.filter(
    ({ name, kind }) => name !== 'migrate' && !kind?.startsWith('deployedDynamoService'),
  );
  expect(waiting.sort()).toEqual(onPostgres.map(({ id }) => id).sort());
});

test('all callers are throttled together', async () => {
  const template = await packagedTemplate('own');
  const stage = propertiesOf<{ DefaultRouteSettings: object }>(template, 'HttpApiStage');
  expect(stage.DefaultRouteSettings).toEqual({
    ThrottlingRateLimit: 1000,
    ThrottlingBurstLimit: 500,
  });
});

function functionsBehindApi(template: Template): string[] {
  return ofType(template, 'AWS::ApiGatewayV2::Integration').map(([, { Properties }]) => {
    const uri = Properties?.['IntegrationUri'] as { 'Fn::GetAtt': [string, string] };
    return uri['Fn::GetAtt'][0];
  });
}
