package lease

import "strings"

// statements writes the SQL of one table. Every change of a claimed row ends
// with the same condition, held: its id, this claim's fencing token, and still
// in flight. Each statement answers how many rows it changed.
func statements(t Table) (claim, finish, retry, giveBack, extend, giveUp string) {
	names := strings.NewReplacer(
		"{table}", t.Name, "{id}", t.ID, "{columns}", prefixed(t.Columns),
		"{inflight}", "'"+t.InFlight+"'", "{done}", "'"+t.Done+"'",
		"{pending}", "'"+Pending+"'", "{failed}", "'"+Failed+"'",
		"{held}", "t."+t.ID+" = i.id AND t.claim_token = $2 AND t.status = '"+t.InFlight+"'",
		"{free}", "claim_token = NULL, locked_by = NULL, locked_at = NULL, lease_until = NULL",
		"{deadletter}", deadLetter(t),
	)
	return names.Replace(claimSQL), names.Replace(finishSQL), names.Replace(retrySQL),
		names.Replace(returnSQL), names.Replace(extendSQL), names.Replace(giveUpSQL)
}

// The rows are chosen in a CTE, which runs once: as a subquery (id IN (SELECT …
// LIMIT …)) the planner may run it again, and claim more than the limit.
// MATERIALIZED says that this is meant.
const claimSQL = `
WITH due AS MATERIALIZED (
	SELECT {id} AS id, attempt_count
	FROM {table}
	WHERE finished_at IS NULL AND next_retry_at <= now()
	  AND (status = {pending} OR lease_until <= now())
	ORDER BY next_retry_at
	LIMIT $1
	FOR UPDATE SKIP LOCKED
)
UPDATE {table} t
SET status = {inflight}, claim_token = $2, locked_by = $3, locked_at = now(), lease_until = now() + $4::interval,
    attempt_count = least(due.attempt_count + 1, $5)
FROM due
WHERE t.{id} = due.id
RETURNING t.{id}, t.attempt_count, due.attempt_count >= $5{columns}`

const finishSQL = `
WITH done AS (
	UPDATE {table} t
	SET status = {done}, finished_at = now(), last_error = NULL, {free}
	FROM unnest($1::uuid[]) AS i(id)
	WHERE {held}
	RETURNING 1
)
SELECT count(*) FROM done`

// The exponent is the number of failures before this one, and bounded so that
// power() cannot overflow.
const retrySQL = `
WITH done AS (
	UPDATE {table} t
	SET status = {pending}, last_error = i.reason, {free},
	    next_retry_at = now() + make_interval(secs => CASE WHEN i.after > 0 THEN i.after
	        ELSE least($6::float8, $5::float8 * power(2, least(t.attempt_count - 1, 30))) * (0.5 + random()) END)
	FROM unnest($1::uuid[], $3::text[], $4::float8[]) AS i(id, reason, after)
	WHERE {held}
	RETURNING 1
)
SELECT count(*) FROM done`

const returnSQL = `
WITH done AS (
	UPDATE {table} t
	SET status = {pending}, last_error = i.reason, attempt_count = t.attempt_count - 1, {free},
	    next_retry_at = now() + make_interval(secs => $4::float8 * (0.5 + random()))
	FROM unnest($1::uuid[], $3::text[]) AS i(id, reason)
	WHERE {held}
	RETURNING 1
)
SELECT count(*) FROM done`

const extendSQL = `
WITH done AS (
	UPDATE {table} t
	SET lease_until = now() + $3::interval
	FROM unnest($1::uuid[]) AS i(id)
	WHERE {held}
	RETURNING 1
)
SELECT count(*) FROM done`

const giveUpSQL = `
WITH dead AS (
	UPDATE {table} t
	SET status = {failed}, finished_at = now(), last_error = i.reason, {free}
	FROM unnest($1::uuid[], $3::text[]) AS i(id, reason)
	WHERE {held}
	RETURNING t.*
){deadletter}
SELECT count(*) FROM dead`

func deadLetter(t Table) string {
	if t.DeadLetter == "" {
		return ""
	}
	return ", letters AS (" + t.DeadLetter + ")"
}

func prefixed(columns string) string {
	if columns == "" {
		return ""
	}
	parts := strings.Split(columns, ",")
	for i, part := range parts {
		parts[i] = "t." + strings.TrimSpace(part)
	}
	return ", " + strings.Join(parts, ", ")
}
