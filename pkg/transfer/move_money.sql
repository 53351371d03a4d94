-- move_money is TX1: it moves the money and ends the key, in one transaction. It
-- returns the answer, which it stores with the key: SUCCEEDED, or FAILED with a reason.
-- Where the key is no longer this attempt's, it does nothing, and returns what the key
-- says.
CREATE FUNCTION core.move_money(
    p_key_id bigint, p_attempt uuid, p_transfer uuid, p_transfer_text text, p_event uuid,
    p_from bigint, p_to bigint, p_amount numeric, p_kind text, p_reverses uuid, p_traceparent text,
    OUT snapshot text, OUT ended_as text
) LANGUAGE plpgsql AS $$
DECLARE
    k integration.idempotency_key;
    giver core.account;
    taker core.account;
    code text; -- why it fails
    at_time timestamptz;
BEGIN
    -- The process that called may be gone, and can cancel nothing then: so Postgres
    -- itself bounds each of the three locks.
    PERFORM set_config('lock_timeout', '4s', true);

    -- The key comes first, before any other lock. Whoever locks it decides how the
    -- request ends: without this, the watchdog could answer FAILED for a transfer that
    -- waits for an account, and that then succeeds.
    SELECT * INTO k FROM integration.idempotency_key WHERE idempotency_key_id = p_key_id FOR UPDATE;
    IF k.status IS DISTINCT FROM 'IN_PROGRESS' OR k.attempt IS DISTINCT FROM p_attempt THEN
        snapshot := k.response_snapshot;
        ended_as := k.status;
        RETURN;
    END IF;

    -- Then both accounts, the lower id first: two transfers in opposite directions wait
    -- for each other instead of deadlocking.
    IF p_from < p_to THEN
        SELECT * INTO giver FROM core.account WHERE account_id = p_from FOR NO KEY UPDATE;
        SELECT * INTO taker FROM core.account WHERE account_id = p_to FOR NO KEY UPDATE;
    ELSE
        SELECT * INTO taker FROM core.account WHERE account_id = p_to FOR NO KEY UPDATE;
        SELECT * INTO giver FROM core.account WHERE account_id = p_from FOR NO KEY UPDATE;
    END IF;

    -- A reversal has the same two accounts as what it reverses, so a second one waited
    -- above for the first. The system's account alone may owe. No balance has more
    -- than 15 digits.
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
        -- TX2 writes the two entries of what is on this list.
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

    -- The key has its answer in the same transaction as the money has moved.
    UPDATE integration.idempotency_key
    SET status = ended_as, error_code = code, response_snapshot = snapshot, completed_at = at_time,
        transfer_id = CASE WHEN code IS NULL THEN p_transfer END
    WHERE idempotency_key_id = p_key_id;
END $$;
