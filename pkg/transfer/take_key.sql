-- take_key is transaction A of many requests at once: it takes each one's key for it, or
-- says what became of the request that has it. Each parameter but the scope is an array
-- with one value for each request; no two have the same key. outcome is
--   TAKEN        the key is this attempt's now: go on with move_money
--   UNKNOWN      the caller has no such key, or it expired before it was used
--   REUSED       the key is for another request
--   IN_PROGRESS  the request is under way, or was left alone; the watchdog ends it
--   ENDED        snapshot is the answer, for good
--   NO_ACCOUNT   one of the accounts does not exist, or the first is not the owner's
--   CURRENCIES   the accounts have different currencies
--   AGAIN        another request takes the key at this moment: run it again to see which
-- p_owners are who must own the first account; NULL where anybody's will do.
CREATE FUNCTION integration.take_key(
    p_scope text, p_clients text[], p_keys text[], p_hashes bytea[], p_attempts uuid[],
    p_owners text[], p_from bigint[], p_to bigint[]
) RETURNS TABLE (nth integer, outcome text, key_id bigint, snapshot text) LANGUAGE plpgsql
-- Plans are kept for long. One that was made while a table was small would read all of it
-- until Postgres has counted it again.
SET enable_seqscan = off
AS $$
BEGIN
    -- This commit does not wait for the disk: TX1's makes it durable, too. Lost on its
    -- own, it leaves unused keys, and no money has moved: whoever was answered
    -- IN_PROGRESS or REUSED asks again.
    PERFORM set_config('synchronous_commit', 'off', true);

    RETURN QUERY
    WITH found AS MATERIALIZED (
        -- Keys are read without a lock: a request that is repeated must not wait for the
        -- transfer.
        SELECT a.*, k.idempotency_key_id, k.status, k.request_hash, k.response_snapshot,
               k.idempotency_key_id IS NULL OR k.status IS NULL AND k.expires_at <= now() AS unknown,
               giver.currency AS giver, taker.currency AS taker
        FROM (SELECT * FROM unnest(p_clients, p_keys, p_hashes, p_attempts, p_owners, p_from, p_to)
              WITH ORDINALITY a (client, key, hash, attempt, owner, from_id, to_id, nth) LIMIT (SELECT 1024)) a -- as in move_money
        LEFT JOIN integration.idempotency_key k ON k.client_id = a.client AND k.scope = p_scope AND k.idempotency_key = a.key
        LEFT JOIN core.account giver ON giver.account_id = a.from_id AND (a.owner IS NULL OR giver.owner_user_id = a.owner)
        -- Only operators move money to the system's account.
        LEFT JOIN core.account taker ON taker.account_id = a.to_id AND (a.owner IS NULL OR taker.owner_user_id IS NOT NULL)
    ), free AS (
        -- A request that cannot be carried out does not use its key up. One whose key is
        -- locked by another that takes it does not wait for it.
        SELECT k.idempotency_key_id, f.hash, f.attempt
        FROM found f JOIN integration.idempotency_key k USING (idempotency_key_id)
        -- Not "k.status IS NULL": a plan that was made while few keys were unused would read
        -- the index of unused ones, which has all of them later, instead of the primary key.
        WHERE f.status IS NULL AND NOT f.unknown AND f.giver = f.taker AND coalesce(k.status, '') = ''
          AND k.client_id = f.client -- which an erasure changes
        FOR UPDATE OF k SKIP LOCKED
    ), taken AS (
        UPDATE integration.idempotency_key k
        SET status = 'IN_PROGRESS', request_hash = free.hash, attempt = free.attempt, started_at = clock_timestamp()
        FROM free WHERE k.idempotency_key_id = free.idempotency_key_id
        RETURNING k.idempotency_key_id
    )
    SELECT f.nth::integer, CASE
        WHEN f.unknown THEN 'UNKNOWN'
        WHEN t.idempotency_key_id IS NOT NULL THEN 'TAKEN'
        WHEN f.status IS NULL AND (f.giver IS NULL OR f.taker IS NULL) THEN 'NO_ACCOUNT'
        WHEN f.status IS NULL AND f.giver <> f.taker THEN 'CURRENCIES'
        WHEN f.status IS NULL THEN 'AGAIN'
        WHEN f.request_hash <> f.hash THEN 'REUSED'
        WHEN f.status = 'IN_PROGRESS' THEN 'IN_PROGRESS'
        ELSE 'ENDED'
    END, f.idempotency_key_id, f.response_snapshot
    FROM found f LEFT JOIN taken t USING (idempotency_key_id);
END $$;
