export const TEMPLATE = 'backstop_test_template';
export const ROLE_PASSWORD = 'backstop-test';

/** `url` with another database or user. */
export function urlOf(
  url: string,
  part: { database?: string; role?: string; port?: number },
): string {
  const changed = new URL(url);
  if (part.database) changed.pathname = `/${part.database}`;
  if (part.port) changed.port = String(part.port);
  if (part.role) {
    changed.username = part.role;
    changed.password = ROLE_PASSWORD;
  }
  return changed.href;
}
