/** What each function may do: its own role, its own log, and a short list that is written out here. */
import { beforeAll, describe, expect, test } from 'vitest';
import { type DeployedFunction, deployedFunctions } from './support/functions.ts';
import { packagedTemplate } from './support/package-service.ts';
import { decided, ofType, propertiesOf, type Template } from './support/template.ts';

interface Statement {
  readonly Effect: 'Allow' | 'Deny';
  readonly Action: string | string[];
  readonly Resource?: unknown;
}

interface Policy {
  readonly PolicyDocument: { readonly Statement: Statement[] };
}

interface Role {
  readonly ManagedPolicyArns?: { readonly Ref: string }[];
  readonly Policies: Policy[];
  readonly AssumeRolePolicyDocument: unknown;
}

let template: Template;
beforeAll(async () => {
  template = decided(await packagedTemplate('own'));
});

const ENDPOINTS = 'VPC endpoints say which resources they lead to';

const DATABASE = 'rds-db:connect as backstop_api';
const CACHE = 'elasticache:Connect';
const READ = 'dynamodb:GetItem';
const WRITE = ['dynamodb:PutItem', 'dynamodb:UpdateItem'];

/** What a function may do by what it is made with; those that do another thing, by name. */
const RIGHTS: Record<string, string[]> = {
  'deployedService.query': [DATABASE],
  'deployedService.mutation': [DATABASE, CACHE],
  'deployedService.recordMutation': [DATABASE, CACHE],
  'deployedDynamoService.query': [READ],
  'deployedDynamoService.mutation': [CACHE, READ, ...WRITE],
  health: [DATABASE, CACHE, READ],
  purge: ['rds-db:connect as backstop_purge', 'sqs:SendMessage'],
  migrate: ['secretsmanager:GetSecretValue'],
};

const functions = deployedFunctions();
const ids = functions.map(({ id }) => id);

function rightsOf({ name, module, kind = '' }: DeployedFunction): string[] {
  const rights = RIGHTS[name] ?? RIGHTS[kind];
  if (rights) return rights;
  throw new Error(`RIGHTS says nothing of ${name}, which ${module}.ts makes with '${kind}'`);
}

const EVERYONES = [
  'ec2:CreateNetworkInterface',
  'ec2:DescribeNetworkInterfaces',
  'ec2:DescribeSubnets',
  'ec2:DeleteNetworkInterface',
  'ec2:AssignPrivateIpAddresses',
  'ec2:UnassignPrivateIpAddresses',
  'logs:CreateLogStream',
  'logs:PutLogEvents',
];

test('each function has a role of its own', () => {
  const roles = ofType(template, 'AWS::Lambda::Function').map(([id, { Properties }]) => [
    id.replace('LambdaFunction', ''),
    Properties?.['Role'],
  ]);
  const expected = ids.map((id) => [id, { 'Fn::GetAtt': [`${id}Role`, 'Arn'] }]);
  expect(roles.sort()).toEqual(expected.sort());
});

test.each(functions)('$name may do what it is made for, and nothing else', (one) => {
  const allowed = statementsOf(one.id).flatMap((statement) =>
    statement.Effect === 'Allow'
      ? [statement.Action].flat().map((action) => rightOf(action, statement))
      : [],
  );
  expect(allowed.sort()).toEqual([...rightsOf(one), ...EVERYONES].sort());
});

test.each(ids)('%s writes its own log and no other', (name) => {
  const logs = statementsOf(name).filter(({ Action }) => [Action].flat()[0]?.startsWith('logs:'));
  expect(logs.map(({ Resource }) => Resource)).toEqual([
    { 'Fn::GetAtt': [`${name}LogGroup`, 'Arn'] },
  ]);
});

test.each(ids)('%s cannot use the network interfaces itself', (name) => {
  const denied = statementsOf(name).filter(({ Effect }) => Effect === 'Deny');
  expect(denied).toMatchObject([
    {
      Action: EVERYONES.filter((action) => action.startsWith('ec2:')),
      Condition: { ArnLike: { 'lambda:SourceFunctionArn': expect.anything() } },
    },
  ]);
});

test('the API and the purge log in to the database through the proxy, by its id', () => {
  const [statement] = propertiesOf<Policy>(template, 'DatabaseAsApiPolicy').PolicyDocument
    .Statement;
  expect(JSON.stringify(statement?.Resource)).toContain(
    '{"Fn::Select":[6,{"Fn::Split":[":",{"Fn::GetAtt":["DatabaseProxy","DBProxyArn"]}]}]}',
  );
});

describe('a right is no wider than it looks', () => {
  const WITH_ANY_RESOURCE = ['NetworkInterfacesPolicy'];

  test('no action has a wildcard', () => {
    const actions = allStatements().flatMap(([, { Action }]) => Action);
    expect(actions.length).toBeGreaterThan(40);
    expect(actions.filter((action) => action.includes('*'))).toEqual([
      // Serverless' own: a Deny of what is sent without TLS to its bucket.
      's3:*',
    ]);
  });

  test('no resource is a star, but for Lambda to check for network interfaces', () => {
    const any = allStatements().filter(([, { Resource }]) => [Resource].flat().includes('*'));
    expect([...new Set(any.map(([id]) => id))]).toEqual(WITH_ANY_RESOURCE);
  });

  test('a wildcard inside a resource is there for a reason', () => {
    const allowed: Record<string, string> = {
      NetworkInterfacesPolicy: 'all interfaces, see above',
      S3Endpoint: ENDPOINTS,
      ServerlessDeploymentBucketPolicy: 'a Deny',
    };
    const wild = allStatements().filter(([, { Resource }]) =>
      JSON.stringify(Resource)?.includes('*'),
    );
    expect([...new Set(wild.map(([id]) => id))].sort()).toEqual(Object.keys(allowed).sort());
  });

  test('every role is for one service', () => {
    const services = ofType(template, 'AWS::IAM::Role').map(([, { Properties }]) =>
      JSON.stringify((Properties as unknown as Role).AssumeRolePolicyDocument).match(
        /"Service":"[^"]+"/g,
      ),
    );
    expect(services.every((found) => found?.length === 1)).toBe(true);
  });
});

describe('the network is no wider either', () => {
  test('nobody is let in from an address, only from a security group', () => {
    const rules = [
      ...ofType(template, 'AWS::EC2::SecurityGroupIngress').map(([, one]) => one.Properties),
      ...ofType(template, 'AWS::EC2::SecurityGroup').flatMap(
        ([, one]) => (one.Properties?.['SecurityGroupIngress'] ?? []) as object[],
      ),
    ];
    expect(rules.length).toBe(5);
    for (const rule of rules) expect(rule).toHaveProperty('SourceSecurityGroupId');
  });

  test('every group says where it leads, and only the way to the endpoints is open, at 443', () => {
    for (const [id, { Properties }] of ofType(template, 'AWS::EC2::SecurityGroup')) {
      const egress = Properties?.['SecurityGroupEgress'] as Record<string, unknown>[];
      expect([id, egress.length]).toEqual([id, 1]);
      if (egress[0]?.['CidrIp'] === '0.0.0.0/0') {
        expect([id, egress[0]['FromPort'], egress[0]['ToPort']]).toEqual([
          'EndpointClients',
          443,
          443,
        ]);
      }
    }
  });

  test('nothing leads out of the VPC', () => {
    const types = Object.values(template.Resources).map(({ Type }) => Type);
    expect(types).not.toContain('AWS::EC2::NatGateway');
    expect(types).not.toContain('AWS::EC2::InternetGateway');
    expect(types).not.toContain('AWS::EC2::Route');
  });

  const reaches = (one: DeployedFunction) => {
    if (one.name === 'migrate') return ['MigrationClients', 'EndpointClients'];
    const rights = rightsOf(one).join();
    return [
      ...(rights.includes('rds-db') ? ['DatabaseClients'] : []),
      ...(rights.includes('elasticache') ? ['CacheClients'] : []),
      ...(rights.includes('dynamodb') ? ['EndpointClients'] : []),
    ];
  };

  test.each(functions)('$name reaches what it uses, and nothing else', (one) => {
    const { VpcConfig } = propertiesOf<{ VpcConfig: { SecurityGroupIds: { Ref: string }[] } }>(
      template,
      `${one.id}LambdaFunction`,
    );
    const groups = VpcConfig.SecurityGroupIds.map(({ Ref }) => Ref);
    expect(groups.sort()).toEqual(reaches(one).sort());
  });
});

function statementsOf(name: string): Statement[] {
  const { ManagedPolicyArns = [], Policies } = propertiesOf<Role>(template, `${name}Role`);
  const managed = ManagedPolicyArns.map(({ Ref }) => propertiesOf<Policy>(template, Ref));
  return [...managed, ...Policies].flatMap(({ PolicyDocument }) => PolicyDocument.Statement);
}

/** With the database role, since that is what a login is about. */
function rightOf(action: string, { Resource }: Statement): string {
  const role = /dbuser:\$\{Database\}\/(\w+)/.exec(JSON.stringify(Resource));
  return action === 'rds-db:connect' ? `${action} as ${role?.[1]}` : action;
}

/** Every policy of the template, wherever it stands, but for who may assume a role. */
function allStatements(): [string, Statement][] {
  const found: [string, Statement][] = [];
  const collect = (id: string, value: unknown): void => {
    if (value === null || typeof value !== 'object') return;
    for (const [key, item] of Object.entries(value)) {
      if (key === 'Statement')
        found.push(...(item as Statement[]).map((one) => [id, one] as [string, Statement]));
      else if (key !== 'AssumeRolePolicyDocument') collect(id, item);
    }
  };
  for (const [id, resource] of Object.entries(template.Resources)) collect(id, resource);
  return found;
}
