/**
 * Protection is a rule and not a list: every route of serverless.yml that may
 * change something is found here by itself, and must refuse what is unprotected.
 */
import middy from '@middy/core';
import { describe, expect, test } from 'vitest';
import { type HttpEvent, Problem } from '../../shared/index.ts';
import { problemResponses } from '../../shared/lambda/index.ts';
import type { Handler } from '../../shared/service/index.ts';
import { httpEvent, newKey, type RequestOptions } from '../support/requests.ts';
import { parseServerlessYml, readServerlessYml } from '../support/serverless-yml.ts';
import { sendEvent } from './support.ts';

const PROJECT = new URL('../../', import.meta.url);

interface Route {
  /** Upper case; `*` for all. */
  readonly method: string;
  readonly path: string;
  /** `folder/module.export`, as serverless.yml names it. */
  readonly handler: string;
  readonly authorizer: unknown;
}

interface Template {
  readonly provider?: { readonly httpApi?: { readonly authorizers?: Record<string, unknown> } };
  readonly functions?: unknown;
  /** By stage. */
  readonly params?: Readonly<Record<string, Dictionary>>;
}

type Dictionary = Readonly<Record<string, unknown>>;

/** Events by which no HTTP request can come. */
const NOT_HTTP = new Set(['schedule', 'sqs', 'sns', 'stream', 'eventBridge', 'cloudwatchLog']);

/** Every HTTP route; throws over what it cannot see through, rather than pass it over. */
function routesOf(template: Template): Route[] {
  return Object.entries(dictionary(template.functions, 'functions')).flatMap(([name, value]) => {
    const { handler, events: declared = [], url } = dictionary(value, name);
    if (url) throw new Error(`${name}: a function URL goes past the authorizer`);
    const events = onAnyStage(declared, template);
    if (!Array.isArray(events)) throw new Error(`${name}: events are no list`);
    return events
      .flatMap((event) => Object.entries(dictionary(event, name)))
      .filter(([kind]) => !NOT_HTTP.has(kind))
      .map(([kind, route]) => {
        if (kind !== 'httpApi') throw new Error(`${name}: this test does not know ${kind} events`);
        return { ...routeOf(route), handler: String(handler) };
      });
  });
}

/** What is a parameter is what it is on every stage, all together. */
function onAnyStage(value: unknown, { params = {} }: Template): unknown {
  const [, name = ''] = /^\$\{param:(\w+)\}$/.exec(String(value)) ?? [];
  const stages = Object.values(params).filter((of) => name in of);
  return stages.length === 0 ? value : stages.flatMap((of) => of[name]);
}

function routeOf(route: unknown): Omit<Route, 'handler'> {
  // `httpApi: '*'` is every request, `httpApi: POST /path` the short form.
  if (typeof route === 'string') {
    const [method = '*', path = '*'] = route.split(/\s+/);
    return { method: method.toUpperCase(), path, authorizer: undefined };
  }
  const { method = '*', path = '*', authorizer } = dictionary(route, 'httpApi');
  return { method: String(method).toUpperCase(), path: String(path), authorizer };
}

function dictionary(value: unknown, what: string): Dictionary {
  if (typeof value === 'object' && value !== null && !Array.isArray(value))
    return value as Dictionary;
  throw new Error(`${what}: this test cannot look into ${JSON.stringify(value)}`);
}

/** Everything but what HTTP calls safe; `*` and ANY take it all. */
function mayChangeSomething({ method }: Pick<Route, 'method'>): boolean {
  return !['GET', 'HEAD', 'OPTIONS'].includes(method);
}

function complaintsOfAuthorizer(route: Route, template: Template): string[] {
  const declared = Object.keys(template.provider?.httpApi?.authorizers ?? {});
  const { name, type } = (route.authorizer ?? {}) as { name?: unknown; type?: unknown };
  const isKnown = type === 'aws_iam' || declared.includes(String(name ?? route.authorizer));
  return isKnown ? [] : ['has no authorizer that the template declares'];
}

/** What is wrong with a handler's protection; nothing, when it is protected. */
async function complaintsOf(handler: Handler, route: Pick<Route, 'method' | 'path'>) {
  const method = /^(?:\*|ANY)$/.test(route.method) ? 'POST' : route.method;
  const base = { method, path: route.path };
  const principal = newKey();
  const checks: [what: string, request: RequestOptions, status: number, code: string][] = [
    ['without a key', { principal, key: null, body: {} }, 400, 'KEY_REQUIRED'],
    ['without a principal', { key: newKey(), body: {} }, 401, 'UNAUTHENTICATED'],
    ['with a body of []', { principal, key: newKey(), body: [] }, 400, 'BODY_INVALID'],
  ];
  const complaints: string[] = [];
  for (const [what, request, status, code] of checks) {
    const seen = await answerTo(handler, httpEvent({ ...base, ...request }));
    const expected = `${status} ${code}`;
    if (seen !== expected) complaints.push(`${what}: ${seen} and not ${expected}`);
  }
  return complaints;
}

async function answerTo(handler: Handler, event: HttpEvent): Promise<string> {
  try {
    const { status, code } = await sendEvent(handler, event);
    return `${status} ${code}`;
  } catch (error) {
    return String(error);
  }
}

async function handlerAt(name: string): Promise<Handler> {
  const at = name.lastIndexOf('.');
  const module = await import(new URL(`${name.slice(0, at)}.ts`, PROJECT).href);
  return module[name.slice(at + 1)];
}

const template = readServerlessYml() as Template;
const mutations = routesOf(template).filter(mayChangeSomething);

test('serverless.yml has routes to check', () => {
  const found = mutations.map(({ method, path }) => `${method} ${path}`);
  expect(found).toEqual(
    expect.arrayContaining(['POST /players/me/coins/spend', 'POST /transfers']),
  );
});

describe.each(mutations)('the route $method $path', (route) => {
  test('the handler refuses a request without a key, a principal or a good body', async () => {
    expect(await complaintsOf(await handlerAt(route.handler), route)).toEqual([]);
  });

  test('the route has an authorizer', () => {
    expect(complaintsOfAuthorizer(route, template)).toEqual([]);
  });
});

describe('the check itself', () => {
  const post = { method: 'POST', path: '/x' };
  const unprotected = () => middy<HttpEvent>().use(problemResponses({}));

  test('the check complains of a handler that does whatever it is asked', async () => {
    const handler = unprotected().handler(async () => ({ statusCode: 200 })) as unknown as Handler;
    expect(await complaintsOf(handler, post)).toEqual([
      'without a key: 200 undefined and not 400 KEY_REQUIRED',
      'without a principal: 200 undefined and not 401 UNAUTHENTICATED',
      'with a body of []: 200 undefined and not 400 BODY_INVALID',
    ]);
  });

  test('the check complains of a handler that asks who it is, and for no key', async () => {
    const handler = unprotected().handler(async (event) => {
      if (!('authorizer' in event.requestContext)) throw new Problem('UNAUTHENTICATED', 'Who?');
      throw new Problem('BODY_INVALID', 'What?');
    }) as unknown as Handler;
    expect(await complaintsOf(handler, post)).toEqual([
      'without a key: 400 BODY_INVALID and not 400 KEY_REQUIRED',
    ]);
  });

  test('the check complains of a handler that throws', async () => {
    const handler: Handler = async () => {
      throw new Error('boom');
    };
    expect(await complaintsOf(handler, post)).toHaveLength(3);
  });

  test('the check finds routes in every form, and calls none of them safe but the safe ones', () => {
    const found = routesOf(
      parseServerlessYml(`
        functions:
          one:
            handler: a/one.handler
            events:
              - httpApi: POST /short
              - httpApi: '*'
              - httpApi: { method: get, path: /safe }
              - httpApi: { path: /any }
              - httpApi: { method: any, path: /x, authorizer: { name: !Ref callers } }
              - schedule: rate(1 minute)
          two:
            handler: a/two.handler
      `) as Template,
    );
    expect(found.filter(mayChangeSomething).map(({ method, path }) => [method, path])).toEqual([
      ['POST', '/short'],
      ['*', '*'],
      ['*', '/any'],
      ['ANY', '/x'],
    ]);
  });

  test('the check finds routes in a parameter, on whatever stage', () => {
    const found = routesOf(
      parseServerlessYml(`
        params:
          default: { moreEvents: [] }
          special: { moreEvents: [{ httpApi: POST /special }] }
        functions:
          one: { handler: a/one.handler, events: '\${param:moreEvents}' }
      `) as Template,
    );
    expect(found.map(({ method, path }) => [method, path])).toEqual([['POST', '/special']]);
  });

  test.each([
    ['a parameter that no stage has', "functions: { one: { events: '${param:more}' } }"],
    ['a kind of event it does not know', 'functions: { one: { events: [{ http: POST /x }] } }'],
    ['a function URL', 'functions: { one: { url: true } }'],
    ['functions that stand elsewhere', "functions: ['${file(functions.yml)}']"],
    ['a function that stands elsewhere', "functions: { one: '${file(one.yml)}' }"],
    ['events that stand elsewhere', "functions: { one: { events: '${file(one.yml)}' } }"],
    ['no functions', 'provider: {}'],
  ])('the check does not pass over %s', (_, text) => {
    expect(() => routesOf(parseServerlessYml(text) as Template)).toThrow();
  });

  test.each([undefined, null, {}, { name: 'nobody' }, 'nobody', { type: 'request' }])(
    'the check does not take %j for an authorizer',
    (authorizer) => {
      const route = { ...post, handler: 'x', authorizer };
      const declared = { provider: { httpApi: { authorizers: { callers: {} } } } };
      expect(complaintsOfAuthorizer(route, declared)).toHaveLength(1);
      expect(complaintsOfAuthorizer({ ...route, authorizer: 'callers' }, declared)).toEqual([]);
    },
  );
});
