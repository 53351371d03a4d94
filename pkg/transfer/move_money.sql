-- move_money is TX1 of many transfers at once: it moves their money and ends their keys,
-- in one transaction. Each parameter is an array with one value for each transfer; no two
-- have the same key. It returns one row for each: the answer, which it stores with the
-- key, SUCCEEDED, or FAILED with a reason. Where the key is no longer this attempt's, it
-- does nothing, and returns what the key says.
--
-- An event's id is a UUIDv7 of the time at which the money moved, by Postgres' clock: what
-- was lost is found in the order of ids (outbox.Reconciler).
--
-- The limits of 1024 are none. But of a limit that is a query Postgres expects few rows,
-- and so it looks rows up by their keys, however small a table was when it planned.
CREATE FUNCTION core.move_money(
    p_keys bigint[], p_attempts uuid[], p_transfers uuid[], p_transfer_texts text[],
    p_from bigint[], p_to bigint[], p_amounts numeric[], p_kinds text[], p_reverses uuid[], p_traceparents text[]
) RETURNS TABLE (nth integer, snapshot text, ended_as text, event_id uuid) LANGUAGE plpgsql
-- Plans are kept for long. One that was made while a table was small would read all of it
-- until Postgres has counted it again.
SET enable_seqscan = off
AS $$
DECLARE
    mine boolean[];     -- the key is still this attempt's
    snapshots text[];   -- what the key says, and then the answer
    endings text[];
    events uuid[];      -- of those that succeed
    codes text[];       -- why it fails
    accounts bigint[];  -- all that take part, in order, with their
    balances numeric[];
    owners text[];
    currencies text[];
    reversed uuid[];    -- transfers that have a reversal
    giver integer;      -- positions in accounts
    taker integer;
    code text;
    at_time timestamptz;
BEGIN
    -- The process that called may be gone, and can cancel nothing then: so Postgres
    -- itself bounds each wait for a lock. Several do not wait for long for one: they run
    -- again, each alone.
    PERFORM set_config('lock_timeout', CASE cardinality(p_keys) WHEN 1 THEN '4s' ELSE '1s' END, true);

    -- The keys come first, before any other lock. Whoever locks a key decides how its
    -- request ends: without this, the watchdog could answer FAILED for a transfer that
    -- waits for an account, and that then succeeds. They are locked in order, so that two
    -- batches do not wait for each other in a circle.
    SELECT array_agg(coalesce(k.status = 'IN_PROGRESS' AND k.attempt = a.attempt, false) ORDER BY a.nth),
           array_agg(k.response_snapshot ORDER BY a.nth), array_agg(k.status ORDER BY a.nth)
    INTO mine, snapshots, endings
    FROM unnest(p_keys, p_attempts) WITH ORDINALITY a (key_id, attempt, nth)
    LEFT JOIN (
        SELECT k.* FROM (SELECT unnest(p_keys) AS key_id LIMIT (SELECT 1024)) few
        JOIN integration.idempotency_key k ON k.idempotency_key_id = few.key_id
        ORDER BY k.idempotency_key_id FOR UPDATE OF k
    ) k ON k.idempotency_key_id = a.key_id;

    IF true = ANY (mine) THEN
        -- Then the accounts, the lowest id first: two transfers in opposite directions wait
        -- for each other instead of deadlocking.
        SELECT array_agg(account_id), array_agg(balance), array_agg(owner_user_id), array_agg(currency)
        INTO accounts, balances, owners, currencies
        FROM (SELECT a.* FROM (SELECT DISTINCT unnest(p_from || p_to) AS account_id LIMIT (SELECT 1024)) few
              JOIN core.account a USING (account_id)
              ORDER BY a.account_id FOR NO KEY UPDATE OF a) a;

        -- A reversal has the same two accounts as what it reverses, so a second one waited
        -- above for the first.
        IF 'REVERSAL' = ANY (p_kinds) THEN
            SELECT array_agg(t.reverses) INTO reversed
            FROM (SELECT unnest(p_reverses) AS reverses LIMIT (SELECT 1024)) few JOIN core.transfer t USING (reverses);
        END IF;

        codes := array_fill(NULL::text, ARRAY[cardinality(p_keys)]);
        events := array_fill(NULL::uuid, ARRAY[cardinality(p_keys)]);
        at_time := clock_timestamp();
        FOR i IN 1 .. cardinality(p_keys) LOOP
            CONTINUE WHEN NOT mine[i];
            giver := array_position(accounts, p_from[i]);
            taker := array_position(accounts, p_to[i]);
            -- The system's account alone may owe. No balance has more than 15 digits.
            code := CASE
                WHEN p_reverses[i] = ANY (reversed) THEN 'ALREADY_REVERSED'
                WHEN owners[giver] IS NOT NULL AND balances[giver] < p_amounts[i] THEN 'INSUFFICIENT_BALANCE'
                WHEN balances[taker] + p_amounts[i] >= 1e15 OR balances[giver] - p_amounts[i] <= -1e15 THEN 'BALANCE_LIMIT'
            END;
            codes[i] := code;
            IF code IS NOT NULL THEN
                endings[i] := 'FAILED';
                snapshots[i] := format('{"status":"FAILED","errorCode":"%s"}', code);
                CONTINUE;
            END IF;
            endings[i] := 'SUCCEEDED';
            events[i] := (lpad(to_hex((extract(epoch FROM at_time) * 1000)::bigint), 12, '0') || '-7' || substr(gen_random_uuid()::text, 16))::uuid;
            snapshots[i] := format('{"transferId":"%s","status":"SUCCEEDED"}', p_transfer_texts[i]);
            balances[giver] := balances[giver] - p_amounts[i];
            balances[taker] := balances[taker] + p_amounts[i];
            IF p_reverses[i] IS NOT NULL THEN
                reversed := reversed || p_reverses[i];
            END IF;
        END LOOP;

        WITH moved AS MATERIALIZED (
            SELECT m.*, array_position(accounts, from_id) AS giver, array_position(accounts, to_id) AS taker
            FROM unnest(mine, codes, p_transfers, p_transfer_texts, events, p_from, p_to, p_amounts, p_kinds, p_reverses, p_traceparents)
                AS m (mine, code, transfer, transfer_text, event, from_id, to_id, amount, kind, reverses, traceparent)
            WHERE m.mine AND m.code IS NULL
        ), made AS (
            INSERT INTO core.transfer (transfer_id, from_account_id, to_account_id, amount, currency, kind, reverses, created_at)
            SELECT transfer, from_id, to_id, amount, currencies[moved.giver], kind, reverses, at_time FROM moved
        ), due AS (
            -- TX2 writes the two entries of what is on this list.
            INSERT INTO core.ledger_due (transfer_id) SELECT transfer FROM moved
        )
        INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, traceparent)
        SELECT event, transfer_text, 'TransferCompleted', jsonb_build_object(
            'event_id', event, 'event_type', 'TransferCompleted',
            'occurred_at', to_char(at_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'transfer_id', transfer_text, 'kind', kind, 'currency', currencies[moved.giver], 'amount', amount::numeric(19,4)::text,
            'from_account_id', from_id, 'from_user_id', coalesce(owners[moved.giver], ''),
            'to_account_id', to_id, 'to_user_id', coalesce(owners[moved.taker], '')), at_time, traceparent
        FROM moved;

        UPDATE core.account a SET balance = b.balance
        FROM (SELECT * FROM unnest(accounts, balances) b (account_id, balance) LIMIT (SELECT 1024)) b
        WHERE a.account_id = b.account_id AND a.balance <> b.balance;

        -- The keys have their answers in the same transaction as the money has moved.
        UPDATE integration.idempotency_key k
        SET status = a.ended_as, error_code = a.code, response_snapshot = a.snapshot, completed_at = at_time,
            transfer_id = CASE WHEN a.code IS NULL THEN a.transfer END
        FROM (SELECT * FROM unnest(p_keys, mine, endings, codes, snapshots, p_transfers)
              a (key_id, mine, ended_as, code, snapshot, transfer) LIMIT (SELECT 1024)) a
        WHERE a.mine AND k.idempotency_key_id = a.key_id;
    END IF;

    RETURN QUERY SELECT a.nth::integer, a.snapshot, a.ended_as, a.event
    FROM unnest(snapshots, endings, events) WITH ORDINALITY a (snapshot, ended_as, event, nth);
END $$;
