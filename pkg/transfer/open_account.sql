-- open_account opens an account, and moves its first balance from the system's
-- account of that currency, which is made when it is needed. The key is one that the
-- caller chose. outcome is
--   OPENED    snapshot is the answer, which is stored with the key
--   REPLAYED  the same request came before; snapshot is its answer
--   REUSED    the key is for another request
--   LIMIT     the system's account cannot owe so much; the key is unused, nothing opened
CREATE FUNCTION core.open_account(
    p_client text, p_scope text, p_key text, p_hash bytea, p_retention interval,
    p_owner text, p_currency text, p_amount numeric, p_transfer uuid, p_transfer_text text, p_traceparent text,
    OUT outcome text, OUT snapshot text
) LANGUAGE plpgsql AS $$
DECLARE
    k integration.idempotency_key;
    opened bigint; -- the new account
    giver bigint;  -- the system's
    at_time timestamptz := clock_timestamp();
    event uuid := (lpad(to_hex((extract(epoch FROM at_time) * 1000)::bigint), 12, '0') || '-7' || substr(gen_random_uuid()::text, 16))::uuid; -- as in move_money
BEGIN
    -- Whoever inserts the key first opens the account; the others wait here for it.
    INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, status, request_hash, started_at, completed_at, response_snapshot, expires_at)
    VALUES (p_client, p_scope, p_key, 'SUCCEEDED', p_hash, at_time, at_time, '', now() + p_retention)
    ON CONFLICT ON CONSTRAINT uk_idempotency_key DO NOTHING;
    IF NOT FOUND THEN
        SELECT * INTO k FROM integration.idempotency_key
        WHERE client_id = p_client AND scope = p_scope AND idempotency_key = p_key;
        IF NOT FOUND THEN -- it was old, and cleanup removed it in this moment
            RAISE serialization_failure USING MESSAGE = 'the key was removed: run it again';
        END IF;
        outcome := CASE WHEN k.request_hash = p_hash THEN 'REPLAYED' ELSE 'REUSED' END;
        snapshot := k.response_snapshot;
        RETURN;
    END IF;

    INSERT INTO core.account (owner_user_id, currency, balance)
    VALUES (p_owner, p_currency, coalesce(p_amount, 0)) RETURNING account_id INTO opened;

    IF p_amount IS NOT NULL THEN
        -- Looked for first, as an insert that meets a conflict uses up an account
        -- number, too.
        IF NOT EXISTS (SELECT FROM core.account WHERE currency = p_currency AND owner_user_id IS NULL) THEN
            INSERT INTO core.account (currency) VALUES (p_currency)
            ON CONFLICT (currency) WHERE owner_user_id IS NULL DO NOTHING;
        END IF;
        -- What it cannot owe is refused, as if nobody had asked.
        PERFORM FROM core.account WHERE currency = p_currency AND owner_user_id IS NULL AND balance - p_amount > -1e15 FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            DELETE FROM core.account WHERE account_id = opened;
            DELETE FROM integration.idempotency_key
            WHERE client_id = p_client AND scope = p_scope AND idempotency_key = p_key;
            outcome := 'LIMIT';
            RETURN;
        END IF;

        -- From here on as in move_money. The system's account is locked last, and the
        -- new one is nobody else's yet, so this never waits in a circle.
        UPDATE core.account SET balance = balance - p_amount
        WHERE currency = p_currency AND owner_user_id IS NULL RETURNING account_id INTO giver;
        INSERT INTO core.transfer (transfer_id, from_account_id, to_account_id, amount, currency, kind, created_at)
        VALUES (p_transfer, giver, opened, p_amount, p_currency, 'OPENING', at_time);
        INSERT INTO core.ledger_due (transfer_id) VALUES (p_transfer);
        INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, traceparent)
        VALUES (event, p_transfer_text, 'TransferCompleted', jsonb_build_object(
            'event_id', event, 'event_type', 'TransferCompleted',
            'occurred_at', to_char(at_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'transfer_id', p_transfer_text, 'kind', 'OPENING', 'currency', p_currency, 'amount', p_amount::numeric(19,4)::text,
            'from_account_id', giver, 'from_user_id', '', 'to_account_id', opened, 'to_user_id', p_owner), at_time, p_traceparent);
    END IF;

    outcome := 'OPENED';
    snapshot := format('{"accountId":%s,"ownerUserId":%s,"currency":"%s","balance":%s}',
        opened, to_json(p_owner), p_currency, trim_scale(coalesce(p_amount, 0)));
    UPDATE integration.idempotency_key SET response_snapshot = snapshot
    WHERE client_id = p_client AND scope = p_scope AND idempotency_key = p_key;
END $$;
