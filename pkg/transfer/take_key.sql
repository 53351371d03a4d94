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
CREATE FUNCTION integration.take_key(
    p_client text, p_scope text, p_key text, p_hash bytea, p_attempt uuid,
    p_owner text, p_from bigint, p_to bigint,
    OUT outcome text, OUT key_id bigint, OUT snapshot text
) LANGUAGE plpgsql AS $$
DECLARE
    k integration.idempotency_key;
    giver text; -- the currencies of both accounts
    taker text;
BEGIN
    -- This commit does not wait for the disk: TX1's makes it durable, too. Lost on its
    -- own, it leaves an unused key, and no money has moved: whoever was told
    -- IN_PROGRESS or REUSED asks again.
    PERFORM set_config('synchronous_commit', 'off', true);

    -- The key is read without a lock: who asks again must not wait for the transfer.
    SELECT * INTO k FROM integration.idempotency_key
    WHERE client_id = p_client AND scope = p_scope AND idempotency_key = p_key;
    key_id := k.idempotency_key_id;

    IF k.status IS NULL AND k.expires_at > now() THEN
        -- It is unused. A request that cannot be carried out does not use it up.
        SELECT currency INTO giver FROM core.account
        WHERE account_id = p_from AND (p_owner IS NULL OR owner_user_id = p_owner);
        -- Only operators move money to the system's account.
        SELECT currency INTO taker FROM core.account
        WHERE account_id = p_to AND (p_owner IS NULL OR owner_user_id IS NOT NULL);
        IF giver IS NULL OR taker IS NULL THEN
            outcome := 'NO_ACCOUNT';
            RETURN;
        ELSIF giver <> taker THEN
            outcome := 'CURRENCIES';
            RETURN;
        END IF;

        -- Of several that found it unused, this lets one have it.
        UPDATE integration.idempotency_key
        SET status = 'IN_PROGRESS', request_hash = p_hash, attempt = p_attempt, started_at = clock_timestamp()
        WHERE idempotency_key_id = key_id AND status IS NULL;
        IF FOUND THEN
            outcome := 'TAKEN';
            RETURN;
        END IF;
        -- Another was faster.
        SELECT * INTO k FROM integration.idempotency_key WHERE idempotency_key_id = key_id;
    END IF;

    IF key_id IS NULL OR k.status IS NULL AND k.expires_at <= now() THEN
        outcome := 'UNKNOWN';
    ELSIF k.request_hash <> p_hash THEN
        outcome := 'REUSED';
    ELSIF k.status IS NULL OR k.status = 'IN_PROGRESS' THEN
        -- NULL: whoever was faster has given it back since.
        outcome := 'IN_PROGRESS';
    ELSE
        outcome := 'ENDED';
        snapshot := k.response_snapshot;
    END IF;
END $$;
