-- What change.sql does, for a change that comes alone: without arrays and joins it takes
-- less of Postgres, and nobody shares its commit.
--
--  $1 user_id   $2 stock_keeping_unit   $3 wanted status   $4 If-Match version, 0 for any
--  $5 caller    $6 operation            $7 idempotency key $8 request hash   $9 key retention
-- $10 audit_id $11 reason               $12 purchase_id    $13 traceparent   $14 caused by a purchase event
--
-- An event's id is a UUIDv7 of the time at which the item changed, by Postgres' clock: what
-- was lost is found in the order of ids (outbox.Reconciler).
--
-- Returns one row: 1, the new answer, or the stored one with replayed = true; none if
-- If-Match does not match. When another request commits the same key first,
-- the insert into idempotency_keys fails and everything here rolls back.
WITH prior AS (
    SELECT status_code, response_body, etag, request_hash
    FROM entitlement.idempotency_keys
    WHERE caller = $5 AND operation = $6 AND idem_key = $7 AND expires_at > now()
), overtaken AS (
    -- A purchase whose refund came first leaves the status unchanged: it grants
    -- nothing, and another purchase may have granted the item since.
    SELECT $14::boolean AND $6 = 'grant' AND EXISTS (
        SELECT FROM entitlement.refunded_purchases
        WHERE user_id = $1 AND stock_keeping_unit = $2 AND purchase_id = $12) AS by_refund
), changed AS (
    INSERT INTO entitlement.entitlements AS e (user_id, stock_keeping_unit, status, version, updated_at)
    SELECT $1, $2, CASE WHEN by_refund THEN 'REVOKED' ELSE $3 END, 1, clock_timestamp()
    FROM overtaken
    WHERE NOT EXISTS (SELECT FROM prior)
      AND ($4::bigint = 0 OR EXISTS (
          SELECT FROM entitlement.entitlements WHERE user_id = $1 AND stock_keeping_unit = $2))
    ON CONFLICT (user_id, stock_keeping_unit) DO UPDATE
    SET status = CASE WHEN (SELECT by_refund FROM overtaken) THEN e.status ELSE excluded.status END,
        version = e.version + 1,
        updated_at = greatest(clock_timestamp(), e.updated_at)
    WHERE $4::bigint = 0 OR e.version = $4::bigint
    RETURNING e.status, e.version, e.updated_at,
              to_char(e.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS updated_at_text,
              (lpad(to_hex((extract(epoch FROM e.updated_at) * 1000)::bigint), 12, '0') || '-7' || substr(gen_random_uuid()::text, 16))::uuid AS event_id
), refunded AS (
    INSERT INTO entitlement.refunded_purchases (user_id, stock_keeping_unit, purchase_id)
    SELECT $1, $2, $12 FROM changed WHERE $14::boolean AND $6 = 'revoke'
    ON CONFLICT DO NOTHING
), stored AS (
    INSERT INTO entitlement.idempotency_keys
        (caller, operation, idem_key, request_hash, status_code, response_body, etag, expires_at)
    SELECT $5, $6, $7, $8::bytea, 200,
           '{"user_id":' || to_json($1::text) || ',"stock_keeping_unit":' || to_json($2::text)
               || ',"status":"' || status || '","version":' || version
               || ',"updated_at":"' || updated_at_text || '"}',
           version::text, now() + $9::interval
    FROM changed
    RETURNING status_code, response_body, etag, request_hash
), audited AS (
    INSERT INTO entitlement.entitlement_audit
        (audit_id, occurred_at, user_id, stock_keeping_unit, operation, status, version,
         reason, purchase_id, caller, idem_key, event_id)
    SELECT $10, updated_at, $1, $2, $6, status, version, $11, $12, $5, $7, event_id
    FROM changed
), appended AS (
    INSERT INTO entitlement.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, traceparent)
    SELECT c.event_id, $1 || '/' || $2, t.event_type,
           jsonb_build_object(
               'event_id', c.event_id, 'event_type', t.event_type, 'occurred_at', c.updated_at_text,
               'user_id', $1::text, 'stock_keeping_unit', $2::text,
               'source', $11::text, 'source_id', $12::text, 'version', c.version),
           c.updated_at, $13
    FROM changed c,
         LATERAL (SELECT CASE c.status WHEN 'ACTIVE' THEN 'EntitlementGranted' ELSE 'EntitlementRevoked' END AS event_type) t
)
SELECT 1 AS nth, status_code, response_body, etag, false AS replayed, request_hash FROM stored
UNION ALL
SELECT 1, status_code, response_body, etag, true, request_hash FROM prior
