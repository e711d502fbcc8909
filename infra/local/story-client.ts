import { localToken } from './token.ts';

/** One answer of the service, judged by its body as much as by its status. */
export type Answer = {
  status: number;
  /** What it means: a player (`fresh` or `replayed`), the problem's code, or what else came. */
  kind: string;
  headers: Headers;
  text: string;
};

export type Send = { amount: number; key?: string | undefined; token?: string | undefined };

/** A caller of the service who spends coins as one player. */
export function storyClient(url: string, player: string) {
  const token = localToken(player);
  return {
    /** Tries once. Leave `key` or `token` undefined and the header is not sent. */
    spend: async ({ amount, ...given }: Send): Promise<Answer> => {
      const withDefaults = { token, ...given };
      const response = await fetch(`${url}/players/me/coins/spend`, {
        method: 'POST',
        headers: headersFor(withDefaults),
        body: JSON.stringify({ amount }),
        signal: AbortSignal.timeout(30_000),
      });
      return judge(response, await response.text());
    },
    coins: async (): Promise<number> => {
      const response = await fetch(`${url}/players/me`, { headers: headersFor({ token }) });
      const text = await response.text();
      if (!isPlayer(text)) throw new Error(`GET /players/me: ${response.status} ${text}`);
      return (JSON.parse(text) as { coins: number }).coins;
    },
    /** What GET /health says of a dependency. */
    dependency: async (name: string): Promise<string> => {
      const response = await fetch(`${url}/health`);
      const { dependencies } = (await response.json()) as {
        dependencies?: Record<string, string>;
      };
      return dependencies?.[name] ?? 'unknown';
    },
  };
}

export type StoryClient = ReturnType<typeof storyClient>;

function headersFor({ key, token }: { key?: string | undefined; token?: string | undefined }) {
  return {
    'content-type': 'application/json',
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
    ...(key !== undefined && { 'idempotency-key': key }),
  };
}

function judge({ status, headers }: Response, text: string): Answer {
  return { status, headers, text, kind: kindOf(status, headers, text) };
}

function kindOf(status: number, headers: Headers, text: string): string {
  // serverless-offline turns a handler that throws into 200 with an error text: not a player.
  if (status === 200 && isPlayer(text)) {
    return headers.get('idempotency-replayed') === 'true' ? 'replayed' : 'fresh';
  }
  if (headers.get('content-type')?.startsWith('application/problem+json')) {
    const problem = parsed(text) as { code?: unknown; status?: unknown } | undefined;
    if (typeof problem?.code === 'string' && problem.status === status) return problem.code;
  }
  return `${status} ${text.slice(0, 80)}`;
}

function isPlayer(text: string): boolean {
  const player = parsed(text) as Record<string, unknown> | undefined;
  return (
    typeof player?.userId === 'string' &&
    typeof player.coins === 'number' &&
    typeof player.dataVersion === 'string'
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
