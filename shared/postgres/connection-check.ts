/**
 * The first statement on each connection. It asks, in one round trip, whether this server and
 * this role can keep the promise at all, and refuses them otherwise, with every unfit setting
 * and missing right in one message.
 *
 * It is one SELECT made of parts: the server's settings here, and what each store and the purge
 * need, which they add. It reads the catalogs and sets nothing, so RDS Proxy does not pin the
 * connection and a pooler may stand between. Measured on new connections, whose catalog caches are
 * empty: with every part it takes 2 to 2.5 times a bare SELECT, a third of opening the connection.
 */
import { type ClientBase, DatabaseError } from 'pg';
import { nowMs } from '../core/clock.ts';
import { ConfigError } from '../core/config-error.ts';
import { answeredAtOnce, SilenceError } from './silence.ts';

/** An expression in the SELECT of the connection check. */
export interface CheckPart {
  /** Of two parts of one name the later one counts. */
  readonly name: string;
  /** One value. `bind` makes a parameter of a value. */
  sql(bind: (value: unknown) => string): string;
  /**
   * True where the expression calls a function of ours, so that on an older schema the whole
   * connection check fails: it is asked again without such parts, to learn what is missing.
   */
  readonly callsFunctions?: true;
  /** What is unfit about the answer; nothing when all is well. */
  judge?(answer: unknown, server: ServerAnswer): readonly Unfit[];
}

/** What is unfit, and what it would lead to. */
export type Unfit =
  | {
      readonly kind: 'setting';
      readonly name: string;
      readonly value: string;
      readonly why: string;
    }
  | { readonly kind: 'missing'; readonly object: string; readonly migration: string }
  | { readonly kind: 'right'; readonly right: string; readonly on: string };

export interface ServerAnswer {
  readonly nowMs: number;
  /** Whose rights count. */
  readonly role: string;
  /** Whose settings count: the role that logged in. */
  readonly login: string;
  readonly database: string;
  readonly isStandby: boolean;
  readonly settings: Readonly<Record<string, string>>;
}

export interface ConnectionCheck {
  add(part: CheckPart): void;
  /** False once a part was added that this connection was not asked for. */
  isCurrent(client: ClientBase): boolean;
  /**
   * @throws ConfigError which names everything that is unfit and the statement that mends it.
   * @throws SilenceError when there is no answer within a second; the connection is destroyed.
   * @throws Error "Connection terminated…" when the server is a standby, or read-only as a whole.
   */
  run(client: ClientBase): Promise<void>;
  /** The last answer to the part of this name. */
  answerTo(name: string): unknown;
  /** How far the server's clock is ahead of ours, as the last connection check saw it. */
  offsetMs(): number;
}

export function createConnectionCheck(): ConnectionCheck {
  const parts = new Map<string, CheckPart>();
  const checked = new WeakMap<ClientBase, number>();
  let answers: ReadonlyMap<string, unknown> = new Map();
  let version = 0;
  let offsetMs = 0;
  return {
    add: (part) => {
      // A store is made for each route: what is asked already makes no connection outdated.
      if (!parts.has(part.name)) version++;
      parts.set(part.name, part);
    },
    isCurrent: (client) => checked.get(client) === version,
    run: async (client) => {
      const asked = version;
      const sentAtMs = nowMs();
      const { server, unfit, ...found } = await ask(client, [...parts.values()]);
      offsetMs = server.nowMs - (sentAtMs + nowMs()) / 2;
      await refuseUnfit(client, server, unfit);
      answers = found.answers;
      checked.set(client, asked);
    },
    answerTo: (name) => answers.get(name),
    offsetMs: () => offsetMs,
  };
}

interface Answers {
  readonly server: ServerAnswer;
  readonly unfit: readonly Unfit[];
  /** By the name of the part. */
  readonly answers: ReadonlyMap<string, unknown>;
}

async function ask(client: ClientBase, parts: readonly CheckPart[]): Promise<Answers> {
  try {
    return await askOnce(client, parts);
  } catch (error) {
    if (!(error instanceof DatabaseError) || !parts.some((part) => part.callsFunctions))
      throw error;
    const answers = await askOnce(
      client,
      parts.filter((part) => !part.callsFunctions),
    );
    if (answers.unfit.length > 0 || answers.server.isStandby) return answers;
    throw error;
  }
}

async function askOnce(client: ClientBase, parts: readonly CheckPart[]): Promise<Answers> {
  const values: unknown[] = [];
  const bind = (value: unknown) => `$${values.push(value)}`;
  const columns = [SERVER, ...parts.map((part) => part.sql(bind))];
  const text = `SELECT ${columns.map((sql, n) => `${sql} AS "${n}"`).join(', ')}`;
  const { rows } = await answeredAtOnce(
    client,
    client.query<Record<string, unknown>>(text, values),
  );
  const row = rows[0] ?? {};
  const server = row['0'] as ServerAnswer;
  const answers = new Map(parts.map(({ name }, n) => [name, row[String(n + 1)]]));
  const unfit = parts.flatMap((part) => part.judge?.(answers.get(part.name), server) ?? []);
  return { server, unfit: [...unfitSettings(server.settings), ...unfit], answers };
}

const SETTINGS = [
  'statement_timeout',
  'idle_in_transaction_session_timeout',
  'synchronous_commit',
  'default_transaction_deferrable',
  'default_transaction_read_only',
] as const;

const SERVER = `json_build_object(
  'nowMs', extract(epoch FROM clock_timestamp()) * 1000,
  'role', current_user, 'login', session_user, 'database', current_database(),
  'isStandby', pg_is_in_recovery(),
  'settings', json_build_object(${SETTINGS.map(
    (name) => `'${name}', current_setting('${name}')`,
  ).join(', ')}))`;

/** What each setting must not be, and why. */
const UNFIT_VALUES: Readonly<Record<(typeof SETTINGS)[number], readonly [string, string]>> = {
  statement_timeout: ['0', 'a frozen request would hold its claim for ever'],
  idle_in_transaction_session_timeout: ['0', 'a frozen request would hold its claim for ever'],
  // `local` and `remote_write` are fit: what this server has acknowledged survives its own crash.
  // How far its standbys may lag is the operator's policy, which no session can see: `on` means
  // no more than `local` where there is no synchronous standby.
  synchronous_commit: ['off', 'a crash would lose what was acknowledged'],
  default_transaction_deferrable: [
    'on',
    'a BEGIN that failed would go unnoticed, and half a mutation would be kept',
  ],
  default_transaction_read_only: ['on', 'nothing could be claimed'],
};

const FIT_VALUES: Readonly<Record<string, string>> = {
  statement_timeout: '28s',
  idle_in_transaction_session_timeout: '28s',
  synchronous_commit: 'on',
  default_transaction_deferrable: 'off',
  default_transaction_read_only: 'off',
};

function unfitSettings(settings: ServerAnswer['settings']): Unfit[] {
  return SETTINGS.flatMap((name) => {
    const [unfitValue, why] = UNFIT_VALUES[name];
    const value = settings[name] as string;
    return value === unfitValue ? [{ kind: 'setting', name, value, why } as const] : [];
  });
}

/** What a role uses of the schema, as a part of the connection check. */
export interface Needs {
  /** Rights on tables, by table: `INSERT`, or on one column: `UPDATE (created_at)`. */
  readonly tables: Readonly<Record<string, readonly string[]>>;
  /** Functions with their argument types, such as `claim_marker(text, text, timestamptz)`. */
  readonly functions?: readonly string[];
  /** The migration that brings what is named here. */
  readonly migration: string;
}

/** Asks for rights in the catalogs, where what is not there is NULL and no error. */
export function needsPart(name: string, { migration, ...needs }: Needs): CheckPart {
  const wanted = wantedBy(needs);
  return {
    name,
    sql: () => `ARRAY[${wanted.map(({ sql }) => sql).join(', ')}]`,
    judge: (answer) => {
      const missing = new Set<string>();
      return wanted.flatMap(({ on, right }, n): Unfit[] => {
        const isGranted = (answer as (boolean | null)[])[n];
        if (isGranted || missing.has(on)) return [];
        if (isGranted === false) return [{ kind: 'right', right, on }];
        missing.add(on);
        return [{ kind: 'missing', object: on, migration }];
      });
    },
  };
}

function wantedBy({ tables, functions = [] }: Omit<Needs, 'migration'>) {
  return [
    ...Object.entries(tables).flatMap(([on, rights]) =>
      rights.map((right) => ({ on, right, sql: tableRight(on, right) })),
    ),
    ...functions.map((on) => ({
      on,
      right: 'EXECUTE',
      sql: `has_function_privilege(to_regprocedure('${on}'), 'EXECUTE')`,
    })),
  ];
}

function tableRight(table: string, right: string): string {
  const [, privilege, column] = /^(\w+) \((\w+)\)$/.exec(right) ?? [];
  return column
    ? `has_column_privilege(to_regclass('${table}'), '${column}', '${privilege}')`
    : `has_table_privilege(to_regclass('${table}'), '${right}')`;
}

async function refuseUnfit(
  client: ClientBase,
  server: ServerAnswer,
  unfit: readonly Unfit[],
): Promise<void> {
  if (server.isStandby) {
    throw new Error(
      'Connection terminated: this server is a standby (pg_is_in_recovery), which takes no writes. After a failover the right one answers under this address in a moment; a reader endpoint never will.',
    );
  }
  if (unfit.length === 0) return;
  const found = await findCauses(client, unfit);
  if (unfit.length === 1 && isReadOnlyAsAWhole(unfit, found)) {
    throw new Error(
      'Connection terminated: this server is read-only as a whole (default_transaction_read_only in its configuration), as it is during a switchover or when its disk is full.',
    );
  }
  const { role, database } = server;
  const list = unfit.map((one) => `\n- ${describe(one, server, found)}`).join('');
  throw new ConfigError(
    `Configuration: the role "${role}" in the database "${database}" cannot keep the promise.${list}\nNothing was done. New connections take the changes up; see docs/database.md.`,
  );
}

/** Where a setting comes from, and where what is missing is after all. */
interface Causes {
  readonly sources: Readonly<Record<string, string>>;
  readonly schemas: Readonly<Record<string, string>>;
}

/** A second statement, on the way to a refusal alone: the connection check itself stays cheap. */
async function findCauses(client: ClientBase, unfit: readonly Unfit[]): Promise<Causes> {
  const settings = unfit.flatMap((one) => (one.kind === 'setting' ? [one.name] : []));
  const objects = unfit.flatMap((one) => (one.kind === 'missing' ? [bareName(one.object)] : []));
  const asking = client.query<{ causes: Causes }>(
    `SELECT json_build_object(
       'sources', (SELECT coalesce(json_object_agg(name, source), '{}') FROM pg_settings
                    WHERE name = ANY ($1)),
       'schemas', (SELECT coalesce(json_object_agg(name, schema), '{}') FROM (
                     SELECT relname AS name, relnamespace::regnamespace::text AS schema FROM pg_class
                      WHERE relname = ANY ($2) AND relkind IN ('r', 'p')
                     UNION SELECT proname, pronamespace::regnamespace::text FROM pg_proc
                      WHERE proname = ANY ($2)) elsewhere)) AS causes`,
    [settings, objects],
  );
  try {
    const { rows } = await answeredAtOnce(client, asking);
    return rows[0]?.causes ?? NO_CAUSES;
  } catch (error) {
    if (error instanceof SilenceError) throw error;
    return NO_CAUSES; // The refusal matters more than its details.
  }
}

const NO_CAUSES: Causes = { sources: {}, schemas: {} };

/** Set for this role, this database or this connection it is a choice; for the whole server it is its state. */
const CHOSEN = new Set(['user', 'database', 'database user', 'client', 'session']);

function isReadOnlyAsAWhole([one]: readonly Unfit[], { sources }: Causes): boolean {
  if (one?.kind !== 'setting' || one.name !== 'default_transaction_read_only') return false;
  const source = sources[one.name];
  return source !== undefined && !CHOSEN.has(source);
}

function describe(one: Unfit, server: ServerAnswer, { sources, schemas }: Causes): string {
  const login = quoted(server.login);
  const database = quoted(server.database);
  switch (one.kind) {
    case 'setting': {
      const value = one.value === '0' ? '0 (no limit)' : one.value;
      const source = sources[one.name];
      const role = source === 'database user' ? `${login} IN DATABASE ${database}` : login;
      const mend =
        source === 'client'
          ? "It comes with the connection itself (the URL's options, or PGOPTIONS): take it out there."
          : `Say: ALTER ROLE ${role} SET ${one.name} = '${FIT_VALUES[one.name]}';`;
      return `${one.name} is ${value}, so ${one.why}. ${mend}`;
    }
    case 'missing': {
      const schema = schemas[bareName(one.object)]; // A row has no other place.
      const hint =
        schema === undefined
          ? `Run migrate(databaseUrl) (migration ${one.migration}).`
          : `There is one of its name in the schema ${schema}: where it is meant, say: GRANT USAGE ON SCHEMA ${schema} TO ${quoted(server.role)}; ALTER ROLE ${login} IN DATABASE ${database} SET search_path = ${schema}, public;`;
      return `${one.object} is missing. ${hint}`;
    }
    case 'right': {
      const kind = one.right === 'EXECUTE' ? 'FUNCTION ' : '';
      return `the right to ${one.right} is missing. Say: GRANT ${one.right} ON ${kind}${one.on} TO ${quoted(server.role)};`;
    }
  }
}

function quoted(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

function bareName(object: string): string {
  return object.replace(/\(.*$/, '');
}
