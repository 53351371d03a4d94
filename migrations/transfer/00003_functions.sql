-- +goose Up

-- open_account as before, but outcome LIMIT where the system's account cannot owe the
-- first balance, too, and account numbers without gaps.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION core.open_account(
    p_client text, p_scope text, p_key text, p_hash bytea, p_retention interval,
    p_owner text, p_currency text, p_amount numeric, p_transfer uuid, p_transfer_text text, p_event uuid, p_traceparent text,
    OUT outcome text, OUT snapshot text
) LANGUAGE plpgsql AS $$
DECLARE
    k integration.idempotency_key;
    opened bigint;
    giver bigint;
    at_time timestamptz := clock_timestamp();
BEGIN
    -- Whoever inserts the key first opens the account; the others wait here for it.
    INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, status, request_hash, started_at, completed_at, response_snapshot, expires_at)
    VALUES (p_client, p_scope, p_key, 'SUCCEEDED', p_hash, at_time, at_time, '', now() + p_retention)
    ON CONFLICT ON CONSTRAINT uk_idempotency_key DO NOTHING;
    IF NOT FOUND THEN
        SELECT * INTO k FROM integration.idempotency_key
        WHERE client_id = p_client AND scope = p_scope AND idempotency_key = p_key;
        IF NOT FOUND THEN -- it was old, and removed in this moment
            RAISE serialization_failure USING MESSAGE = 'the key was removed: run it again';
        END IF;
        outcome := CASE WHEN k.request_hash = p_hash THEN 'REPLAYED' ELSE 'REUSED' END;
        snapshot := k.response_snapshot;
        RETURN;
    END IF;
    INSERT INTO core.account (owner_user_id, currency, balance)
    VALUES (p_owner, p_currency, coalesce(p_amount, 0)) RETURNING account_id INTO opened;
    IF p_amount IS NOT NULL THEN
        -- Not by the insert alone: a conflict, too, uses up an account number.
        IF NOT EXISTS (SELECT FROM core.account WHERE currency = p_currency AND owner_user_id IS NULL) THEN
            INSERT INTO core.account (currency) VALUES (p_currency)
            ON CONFLICT (currency) WHERE owner_user_id IS NULL DO NOTHING;
        END IF;
        -- What it cannot owe is refused: the key is not used up, nothing is opened.
        PERFORM FROM core.account WHERE currency = p_currency AND owner_user_id IS NULL AND balance - p_amount > -1e15 FOR NO KEY UPDATE;
        IF NOT FOUND THEN
            DELETE FROM core.account WHERE account_id = opened;
            DELETE FROM integration.idempotency_key
            WHERE client_id = p_client AND scope = p_scope AND idempotency_key = p_key;
            outcome := 'LIMIT';
            RETURN;
        END IF;
        UPDATE core.account SET balance = balance - p_amount
        WHERE currency = p_currency AND owner_user_id IS NULL RETURNING account_id INTO giver;
        INSERT INTO core.transfer (transfer_id, from_account_id, to_account_id, amount, currency, kind, created_at)
        VALUES (p_transfer, giver, opened, p_amount, p_currency, 'OPENING', at_time);
        INSERT INTO core.ledger_due (transfer_id) VALUES (p_transfer);
        INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, traceparent)
        VALUES (p_event, p_transfer_text, 'TransferCompleted', jsonb_build_object(
            'event_id', p_event, 'event_type', 'TransferCompleted',
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
-- +goose StatementEnd

-- take_key as before, with fewer statements and without waiting for the disk.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION integration.take_key(
    p_client text, p_scope text, p_key text, p_hash bytea, p_attempt uuid,
    p_owner text, p_from bigint, p_to bigint,
    OUT outcome text, OUT key_id bigint, OUT snapshot text
) LANGUAGE plpgsql AS $$
DECLARE
    k integration.idempotency_key;
    giver text;
    taker text;
BEGIN
    -- TX1's commit makes this durable, too. Lost on its own, it leaves an unused key,
    -- and no money has moved: whoever was told IN_PROGRESS or REUSED asks again.
    PERFORM set_config('synchronous_commit', 'off', true);
    -- Without a lock: who asks again must not wait for the transfer.
    SELECT * INTO k FROM integration.idempotency_key
    WHERE client_id = p_client AND scope = p_scope AND idempotency_key = p_key;
    key_id := k.idempotency_key_id;
    IF k.status IS NULL AND k.expires_at > now() THEN
        SELECT currency INTO giver FROM core.account
        WHERE account_id = p_from AND (p_owner IS NULL OR owner_user_id = p_owner);
        SELECT currency INTO taker FROM core.account
        WHERE account_id = p_to AND (p_owner IS NULL OR owner_user_id IS NOT NULL);
        IF giver IS NULL OR taker IS NULL THEN
            outcome := 'NO_ACCOUNT';
            RETURN;
        ELSIF giver <> taker THEN
            outcome := 'CURRENCIES';
            RETURN;
        END IF;
        UPDATE integration.idempotency_key
        SET status = 'IN_PROGRESS', request_hash = p_hash, attempt = p_attempt, started_at = clock_timestamp()
        WHERE idempotency_key_id = key_id AND status IS NULL;
        IF FOUND THEN
            outcome := 'TAKEN';
            RETURN;
        END IF;
        -- Somebody was faster.
        SELECT * INTO k FROM integration.idempotency_key WHERE idempotency_key_id = key_id;
    END IF;
    IF key_id IS NULL OR k.status IS NULL AND k.expires_at <= now() THEN
        outcome := 'UNKNOWN';
    ELSIF k.request_hash <> p_hash THEN
        outcome := 'REUSED';
    ELSIF k.status IS NULL OR k.status = 'IN_PROGRESS' THEN
        outcome := 'IN_PROGRESS';
    ELSE
        outcome := 'ENDED';
        snapshot := k.response_snapshot;
    END IF;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION core.open_account(
    p_client text, p_scope text, p_key text, p_hash bytea, p_retention interval,
    p_owner text, p_currency text, p_amount numeric, p_transfer uuid, p_transfer_text text, p_event uuid, p_traceparent text,
    OUT outcome text, OUT snapshot text
) LANGUAGE plpgsql AS $$
DECLARE
    k integration.idempotency_key;
    opened bigint;
    giver bigint;
    at_time timestamptz := clock_timestamp();
BEGIN
    -- Whoever inserts the key first opens the account; the others wait here for it.
    INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, status, request_hash, started_at, completed_at, response_snapshot, expires_at)
    VALUES (p_client, p_scope, p_key, 'SUCCEEDED', p_hash, at_time, at_time, '', now() + p_retention)
    ON CONFLICT ON CONSTRAINT uk_idempotency_key DO NOTHING;
    IF NOT FOUND THEN
        SELECT * INTO k FROM integration.idempotency_key
        WHERE client_id = p_client AND scope = p_scope AND idempotency_key = p_key;
        outcome := CASE WHEN k.request_hash = p_hash THEN 'REPLAYED' ELSE 'REUSED' END;
        snapshot := k.response_snapshot;
        RETURN;
    END IF;
    INSERT INTO core.account (owner_user_id, currency, balance)
    VALUES (p_owner, p_currency, coalesce(p_amount, 0)) RETURNING account_id INTO opened;
    IF p_amount IS NOT NULL THEN
        INSERT INTO core.account (currency) VALUES (p_currency)
        ON CONFLICT (currency) WHERE owner_user_id IS NULL DO NOTHING;
        UPDATE core.account SET balance = balance - p_amount
        WHERE currency = p_currency AND owner_user_id IS NULL RETURNING account_id INTO giver;
        INSERT INTO core.transfer (transfer_id, from_account_id, to_account_id, amount, currency, kind, created_at)
        VALUES (p_transfer, giver, opened, p_amount, p_currency, 'OPENING', at_time);
        INSERT INTO core.ledger_due (transfer_id) VALUES (p_transfer);
        INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, traceparent)
        VALUES (p_event, p_transfer_text, 'TransferCompleted', jsonb_build_object(
            'event_id', p_event, 'event_type', 'TransferCompleted',
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
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION integration.take_key(
    p_client text, p_scope text, p_key text, p_hash bytea, p_attempt uuid,
    p_owner text, p_from bigint, p_to bigint,
    OUT outcome text, OUT key_id bigint, OUT snapshot text
) LANGUAGE plpgsql AS $$
DECLARE
    k integration.idempotency_key;
    currencies text[];
BEGIN
    -- First without a lock: who asks again must not wait for the transfer.
    SELECT * INTO k FROM integration.idempotency_key
    WHERE client_id = p_client AND scope = p_scope AND idempotency_key = p_key;
    IF k.status IS NULL THEN
        SELECT * INTO k FROM integration.idempotency_key
        WHERE client_id = p_client AND scope = p_scope AND idempotency_key = p_key FOR UPDATE;
    END IF;
    key_id := k.idempotency_key_id;
    IF key_id IS NULL OR k.status IS NULL AND k.expires_at <= now() THEN
        outcome := 'UNKNOWN';
    ELSIF k.status IS NOT NULL AND k.request_hash <> p_hash THEN
        outcome := 'REUSED';
    ELSIF k.status = 'IN_PROGRESS' THEN
        outcome := 'IN_PROGRESS';
    ELSIF k.status IS NOT NULL THEN
        outcome := 'ENDED';
        snapshot := k.response_snapshot;
    ELSE
        SELECT array_agg(a.currency) INTO currencies FROM core.account a
        WHERE a.account_id = p_from AND (p_owner IS NULL OR a.owner_user_id = p_owner)
           OR a.account_id = p_to AND (p_owner IS NULL OR a.owner_user_id IS NOT NULL);
        IF coalesce(array_length(currencies, 1), 0) < 2 THEN
            outcome := 'NO_ACCOUNT';
        ELSIF currencies[1] <> currencies[2] THEN
            outcome := 'CURRENCIES';
        ELSE
            UPDATE integration.idempotency_key
            SET status = 'IN_PROGRESS', request_hash = p_hash, attempt = p_attempt, started_at = clock_timestamp()
            WHERE idempotency_key_id = key_id;
            outcome := 'TAKEN';
        END IF;
    END IF;
END $$;
-- +goose StatementEnd
