/** The names of entries: `{namespace}:{epoch}:idem:…`, each part percent-encoded. */

/** Whose entries these are. Everybody who shares them sets the same. */
export interface Keyspace {
  /**
   * Of the deployment, such as its service and stage. Two deployments on one Redis know each other's
   * callers by the same names; without it, one would replay the other's answers.
   */
  readonly namespace: string;
  /**
   * A whole number above 0, usually 1. Raise it when the database was restored: what Redis
   * holds then stands for effects that the database has lost.
   */
  readonly epoch?: number;
}

/**
 * Names entries. No part holds the delimiter, so that user `t1` with key `a:b` is not `t1:a` with
 * `b`, and an ACL pattern `{namespace}:*` matches one deployment's keys. No part holds a brace,
 * which would be a hash tag and put all of them on one node of a cluster.
 *
 * @throws TypeError without a namespace, or with an epoch that is no whole number above 0.
 */
export function entryNames({ namespace, epoch = 1 }: Keyspace): (...parts: string[]) => string {
  // For callers in JavaScript too.
  if (typeof namespace !== 'string' || namespace === '') {
    throw new TypeError(
      `The cache needs a namespace: the name of this deployment, such as service and stage. Without it two deployments on one Redis would replay each other's answers. Pass namespace: "shop-prod".`,
    );
  }
  if (!Number.isSafeInteger(epoch) || epoch < 1) {
    throw new TypeError(
      `The cache's epoch is ${epoch}: it must be a whole number above 0. Leave it out, and raise it when the database was restored.`,
    );
  }
  const prefix = `${encodePart(namespace)}:${epoch}:idem:`;
  return (...parts) => prefix + parts.map(encodePart).join(':');
}

/** `*` too, since the namespace stands in the pattern of an ACL. */
const encodePart = (part: string): string => encodeURIComponent(part).replaceAll('*', '%2A');
