package lease

import (
	"cmp"
	"strings"
)

// statements is the SQL of one table. Every change of a claimed row ends with the same
// condition, held: its id, this claim's fencing token, and still in flight. Each
// statement but claim returns the number of changed rows.
type statements struct{ claim, finish, retry, giveBack, giveUp string }

func statementsOf(t Table) statements {
	names := strings.NewReplacer(
		"{table}", t.Name, "{id}", t.ID, "{columns}", prefixed(t.Columns), "{where}", cmp.Or(t.Where, "true"),
		"{inflight}", "'"+t.InFlight+"'", "{done}", "'"+t.Done+"'",
		"{pending}", "'"+Pending+"'", "{failed}", "'"+Failed+"'",
		"{held}", "t."+t.ID+" = i.id AND t.claim_token = $2 AND t.status = '"+t.InFlight+"'",
		"{free}", "claim_token = NULL, locked_by = NULL, locked_at = NULL, lease_until = NULL",
		"{deadletter}", deadLetter(t),
	)
	return statements{
		claim: names.Replace(claimSQL), finish: names.Replace(finishSQL), retry: names.Replace(retrySQL),
		giveBack: names.Replace(returnSQL), giveUp: names.Replace(giveUpSQL),
	}
}

// The rows are chosen in a CTE, which runs once: as a subquery (id IN (SELECT …
// LIMIT …)) the planner may run it again, and claim more than the limit. MATERIALIZED
// forbids that.
//
// Rows whose lease expired died together with their worker, and one of them may have
// killed it. They are claimed apart from all others, and at most half of those that died
// together: so the good rows are finished, and the bad one ends up alone. Only a death
// alone counts as an attempt, and only a row that died alone is exhausted: a worker that
// always crashes fails no row. A row has a claim_token only while it is leased, so
// PENDING rows are one group here.
const claimSQL = `
WITH due AS MATERIALIZED (
	SELECT {id} AS id, attempt_count, claim_token, coalesce(claim_size, $1) AS claim_size, next_retry_at
	FROM {table}
	WHERE finished_at IS NULL AND next_retry_at <= now()
	  AND (status = {pending} OR lease_until <= now()) AND {where}
	ORDER BY next_retry_at
	LIMIT $1
	FOR UPDATE SKIP LOCKED
), first AS MATERIALIZED (
	SELECT claim_token, CASE WHEN claim_token IS NULL THEN $1 ELSE greatest(claim_size / 2, 1) END AS most
	FROM due ORDER BY next_retry_at LIMIT 1
), chosen AS MATERIALIZED (
	SELECT id, attempt_count, claim_token IS NOT NULL AS left_behind,
	       claim_token IS NOT NULL AND claim_size > 1 AS died_with_others
	FROM due
	WHERE claim_token IS NOT DISTINCT FROM (SELECT claim_token FROM first)
	ORDER BY next_retry_at
	LIMIT (SELECT most FROM first)
)
UPDATE {table} t
SET status = {inflight}, claim_token = $2, locked_by = $3, locked_at = now(), lease_until = now() + $4::interval,
    attempt_count = CASE WHEN died_with_others THEN t.attempt_count ELSE least(t.attempt_count + 1, $5) END,
    claim_size = (SELECT count(*) FROM chosen)
FROM chosen
WHERE t.{id} = chosen.id
RETURNING t.{id}, t.attempt_count, left_behind, NOT died_with_others AND chosen.attempt_count >= $5{columns}`

const finishSQL = `
WITH done AS (
	UPDATE {table} t
	SET status = {done}, finished_at = now(), last_error = NULL, {free}
	FROM unnest($1::uuid[]) AS i(id)
	WHERE {held}
	RETURNING 1
)
SELECT count(*) FROM done`

// The exponent is the number of earlier failures, bounded so that power() cannot
// overflow.
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
