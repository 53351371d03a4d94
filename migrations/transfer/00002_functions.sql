-- +goose Up

-- take_key is transaction A: it takes a caller's key for a request, or says what
-- became of the request that has it. outcome is
--   TAKEN        the key is this attempt's now: go on with move_money
--   UNKNOWN      the caller has no such key, or it expired before it was used
--   REUSED       the key is for another request
--   IN_PROGRESS  the request is under way, or was left alone; the watchdog ends it
--   ENDED        snapshot is the answer, for good
--   NO_ACCOUNT   one of the accounts does not exist, or the first is not the owner's
--   CURRENCIES   the accounts have different currencies
-- p_owner is who must own the first account; NULL where anybody's will do.
-- +goose StatementBegin
CREATE FUNCTION integration.take_key(
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

-- move_money is TX1. It locks the key first and checks that it is still this
-- attempt's: otherwise the watchdog could answer FAILED for a transfer that then
-- succeeds. Then it locks both accounts, the lower id first, so that two transfers
-- in opposite directions wait for each other instead of deadlocking. It returns the
-- answer, which it stores with the key: SUCCEEDED, or FAILED with a reason.
-- +goose StatementBegin
CREATE FUNCTION core.move_money(
    p_key_id bigint, p_attempt uuid, p_transfer uuid, p_transfer_text text, p_event uuid,
    p_from bigint, p_to bigint, p_amount numeric, p_kind text, p_reverses uuid, p_traceparent text,
    OUT snapshot text, OUT ended_as text
) LANGUAGE plpgsql AS $$
DECLARE
    k integration.idempotency_key;
    giver core.account;
    taker core.account;
    code text;
    at_time timestamptz;
BEGIN
    PERFORM set_config('lock_timeout', '4s', true);
    SELECT * INTO k FROM integration.idempotency_key WHERE idempotency_key_id = p_key_id FOR UPDATE;
    IF k.status IS DISTINCT FROM 'IN_PROGRESS' OR k.attempt IS DISTINCT FROM p_attempt THEN
        snapshot := k.response_snapshot;
        ended_as := k.status;
        RETURN;
    END IF;
    IF p_from < p_to THEN
        SELECT * INTO giver FROM core.account WHERE account_id = p_from FOR NO KEY UPDATE;
        SELECT * INTO taker FROM core.account WHERE account_id = p_to FOR NO KEY UPDATE;
    ELSE
        SELECT * INTO taker FROM core.account WHERE account_id = p_to FOR NO KEY UPDATE;
        SELECT * INTO giver FROM core.account WHERE account_id = p_from FOR NO KEY UPDATE;
    END IF;
    IF p_reverses IS NOT NULL AND EXISTS (SELECT FROM core.transfer WHERE reverses = p_reverses) THEN
        code := 'ALREADY_REVERSED';
    ELSIF giver.owner_user_id IS NOT NULL AND giver.balance < p_amount THEN
        code := 'INSUFFICIENT_BALANCE';
    ELSIF taker.balance + p_amount >= 1e15 OR giver.balance - p_amount <= -1e15 THEN
        code := 'BALANCE_LIMIT';
    END IF;
    at_time := clock_timestamp();
    IF code IS NOT NULL THEN
        ended_as := 'FAILED';
        snapshot := format('{"status":"FAILED","errorCode":"%s"}', code);
    ELSE
        ended_as := 'SUCCEEDED';
        snapshot := format('{"transferId":"%s","status":"SUCCEEDED"}', p_transfer_text);
        INSERT INTO core.transfer (transfer_id, from_account_id, to_account_id, amount, currency, kind, reverses, created_at)
        VALUES (p_transfer, p_from, p_to, p_amount, giver.currency, p_kind, p_reverses, at_time);
        INSERT INTO core.ledger_due (transfer_id) VALUES (p_transfer);
        INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at, traceparent)
        VALUES (p_event, p_transfer_text, 'TransferCompleted', jsonb_build_object(
            'event_id', p_event, 'event_type', 'TransferCompleted',
            'occurred_at', to_char(at_time AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            'transfer_id', p_transfer_text, 'kind', p_kind, 'currency', giver.currency, 'amount', p_amount::numeric(19,4)::text,
            'from_account_id', p_from, 'from_user_id', coalesce(giver.owner_user_id, ''),
            'to_account_id', p_to, 'to_user_id', coalesce(taker.owner_user_id, '')), at_time, p_traceparent);
        UPDATE core.account SET balance = balance - p_amount WHERE account_id = p_from;
        UPDATE core.account SET balance = balance + p_amount WHERE account_id = p_to;
    END IF;
    UPDATE integration.idempotency_key
    SET status = ended_as, error_code = code, response_snapshot = snapshot, completed_at = at_time,
        transfer_id = CASE WHEN code IS NULL THEN p_transfer END
    WHERE idempotency_key_id = p_key_id;
END $$;
-- +goose StatementEnd

-- open_account opens an account, and moves its first balance from the system's
-- account of that currency, which is made when it is needed. The key is the
-- caller's own: outcome is OPENED, REPLAYED (snapshot is the first answer), or
-- REUSED for a key of another request.
-- +goose StatementBegin
CREATE FUNCTION core.open_account(
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

-- +goose Down
DROP FUNCTION core.open_account;
DROP FUNCTION core.move_money;
DROP FUNCTION integration.take_key;
