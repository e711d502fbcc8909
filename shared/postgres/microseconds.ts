/**
 * Times as they cross between Postgres and this process: whole microseconds since 1970, in text. A
 * Date loses them, one float8 in four differs from itself by a rounding, and a timestamptz as text
 * is spelled in the session's DateStyle.
 */

/** SQL: a timestamptz as microseconds. */
export function toMicros(time: string): string {
  return `(extract(epoch FROM ${time}) * 1000000)::bigint`;
}

/**
 * SQL: microseconds as a timestamptz. Exact until the year 2255, where they no longer fit a
 * double; `to_timestamp` takes seconds, in which a double has no place for all of them today.
 */
export function fromMicros(micros: string): string {
  return `(timestamptz 'epoch' + ${micros}::bigint * interval '1 microsecond')`;
}
