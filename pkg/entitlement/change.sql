-- Grants and revokes: state, stored answers, audit and events in one statement. Each
-- parameter is an array with one value for each change, but for the last:
--
--  $1 user_id   $2 stock_keeping_unit   $3 wanted status   $4 If-Match version, 0 for any
--  $5 caller    $6 operation            $7 idempotency key $8 request hash
--  $9 audit_id $10 reason               $11 purchase_id    $12 traceparent   $13 caused by a purchase event
-- $14 key retention
--
-- Changes come in the order of their items, so that two batches do not wait for each
-- other's rows in a circle. No two are of the same item, or have the same key. Returns one
-- row for each: nth, the new answer, or the stored one with replayed = true; none if
-- If-Match does not match. When another request commits one of the keys first, the insert
-- into idempotency_keys fails and everything here rolls back.
WITH asked AS MATERIALIZED (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[],
                         $9::uuid[], $10::text[], $11::text[], $12::text[], $13::boolean[])
        WITH ORDINALITY AS a (user_id, stock_keeping_unit, wanted, if_match, caller, operation, idem_key, request_hash,
                              audit_id, reason, purchase_id, traceparent, by_purchase, nth)
    -- No limit, but Postgres expects few rows whatever the arrays are, and so it plans once:
    -- planning takes longer than running.
    LIMIT (SELECT 1024)
), prior AS MATERIALIZED (
    SELECT a.nth, k.status_code, k.response_body, k.etag, k.request_hash
    FROM asked a JOIN entitlement.idempotency_keys k USING (caller, operation, idem_key)
    WHERE k.expires_at > now()
), overtaken AS MATERIALIZED (
    -- A purchase whose refund came first leaves the status unchanged: it grants
    -- nothing, and another purchase may have granted the item since.
    SELECT user_id, stock_keeping_unit
    FROM asked JOIN entitlement.refunded_purchases USING (user_id, stock_keeping_unit, purchase_id)
    WHERE by_purchase AND operation = 'grant'
), changed AS (
    -- The version of the inserted row is what If-Match wants the next one to be, and 1 for
    -- any: a new row is inserted for any only.
    INSERT INTO entitlement.entitlements AS e (user_id, stock_keeping_unit, status, version, updated_at)
    SELECT user_id, stock_keeping_unit,
           CASE WHEN (user_id, stock_keeping_unit) IN (SELECT user_id, stock_keeping_unit FROM overtaken) THEN 'REVOKED' ELSE wanted END,
           least(if_match, 9223372036854775806) + 1, clock_timestamp()
    FROM asked a
    WHERE nth NOT IN (SELECT nth FROM prior)
      AND (if_match = 0 OR EXISTS (
          SELECT FROM entitlement.entitlements e WHERE e.user_id = a.user_id AND e.stock_keeping_unit = a.stock_keeping_unit))
    ON CONFLICT (user_id, stock_keeping_unit) DO UPDATE
    SET status = CASE WHEN (e.user_id, e.stock_keeping_unit) IN (SELECT user_id, stock_keeping_unit FROM overtaken) THEN e.status ELSE excluded.status END,
        version = e.version + 1,
        updated_at = greatest(clock_timestamp(), e.updated_at)
    WHERE excluded.version = 1 OR e.version = excluded.version - 1
    RETURNING e.user_id, e.stock_keeping_unit, e.status, e.version, e.updated_at,
              to_char(e.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS updated_at_text
), answered AS MATERIALIZED (
    SELECT *,
           '{"user_id":' || to_json(user_id) || ',"stock_keeping_unit":' || to_json(stock_keeping_unit)
               || ',"status":"' || status || '","version":' || version
               || ',"updated_at":"' || updated_at_text || '"}' AS body,
           (lpad(to_hex((extract(epoch FROM updated_at) * 1000)::bigint), 12, '0') || '-7' || substr(gen_random_uuid()::text, 16))::uuid AS event_id
    FROM changed JOIN asked USING (user_id, stock_keeping_unit)
), refunded AS (
    INSERT INTO entitlement.refunded_purchases (user_id, stock_keeping_unit, purchase_id)
    SELECT user_id, stock_keeping_unit, purchase_id FROM answered WHERE by_purchase AND operation = 'revoke'
    ON CONFLICT DO NOTHING
), stored AS (
    INSERT INTO entitlement.idempotency_keys
        (caller, operation, idem_key, request_hash, status_code, response_body, etag, expires_at)
    SELECT caller, operation, idem_key, request_hash, 200, body, version::text, now() + $14::interval
    FROM answered
), audited AS (
    INSERT INTO entitlement.entitlement_audit
        (audit_id, occurred_at, user_id, stock_keeping_unit, operation, status, version,
         reason, purchase_id, caller, idem_key, event_id)
    SELECT audit_id, updated_at, user_id, stock_keeping_unit, operation, status, version,
           reason, purchase_id, caller, idem_key, event_id
    FROM answered
), appended AS (
    INSERT INTO entitlement.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, traceparent)
    SELECT event_id, user_id || '/' || stock_keeping_unit, t.event_type,
           jsonb_build_object(
               'event_id', event_id, 'event_type', t.event_type, 'occurred_at', updated_at_text,
               'user_id', user_id, 'stock_keeping_unit', stock_keeping_unit,
               'source', reason, 'source_id', purchase_id, 'version', version),
           updated_at, traceparent
    FROM answered,
         LATERAL (SELECT CASE status WHEN 'ACTIVE' THEN 'EntitlementGranted' ELSE 'EntitlementRevoked' END AS event_type) t
)
SELECT nth, 200::smallint, body, version::text, false, request_hash FROM answered
UNION ALL
SELECT nth, status_code, response_body, etag, true, request_hash FROM prior
