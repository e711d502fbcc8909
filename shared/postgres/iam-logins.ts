import pg from 'pg';

/**
 * Lets the service's roles log in with IAM tokens, where the server knows that (RDS and
 * Aurora: there is a role rds_iam); does nothing elsewhere. Safe to run twice and
 * concurrently.
 *
 * Not a migration: on RDS it also ends their logins by password, so it is for a deployment
 * that uses tokens, and not for everyone who calls `migrate` on RDS.
 *
 * @returns the roles that log in with tokens.
 */
export async function allowIamLogins(databaseUrl: string): Promise<string[]> {
  const client = new pg.Client({ connectionString: databaseUrl });
  client.on('error', () => {}); // Heard through its queries.
  await client.connect();
  try {
    await client.query(GRANT_RDS_IAM);
    const { rows } = await client.query<{ member: string }>(MEMBERS);
    return rows.map(({ member }) => member);
  } finally {
    await client.end();
  }
}

/** Without a lock of ours: grants of roles wait for each other. */
const GRANT_RDS_IAM = `DO $$
  DECLARE login name;
  BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_iam') THEN RETURN; END IF;
    FOR login IN SELECT rolname FROM pg_roles WHERE rolname IN ('backstop_api', 'backstop_purge') LOOP
      EXECUTE format('GRANT rds_iam TO %I', login);
    END LOOP;
  END $$`;

const MEMBERS = `SELECT member.rolname AS member
    FROM pg_auth_members m
    JOIN pg_roles granted ON granted.oid = m.roleid AND granted.rolname = 'rds_iam'
    JOIN pg_roles member ON member.oid = m.member
   WHERE member.rolname IN ('backstop_api', 'backstop_purge')
   GROUP BY 1 ORDER BY 1`;
