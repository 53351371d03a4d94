-- +goose Up
CREATE SCHEMA IF NOT EXISTS core;
CREATE SCHEMA IF NOT EXISTS integration;

-- Where money is. One account a currency belongs to the system; it alone may owe:
-- first balances come from it, so the sum over all accounts is always 0. fillfactor
-- leaves room for the next balance on the same page (a HOT update).
CREATE TABLE core.account (
    account_id    bigint        GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_user_id text          CHECK (char_length(owner_user_id) BETWEEN 1 AND 128),
    currency      text          NOT NULL CHECK (currency ~ '^[A-Z]{3}$'),
    balance       numeric(19,4) NOT NULL DEFAULT 0,
    created_at    timestamptz   NOT NULL DEFAULT now(),
    CONSTRAINT only_the_system_owes CHECK (owner_user_id IS NULL OR balance >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX account_of_the_system ON core.account (currency) WHERE owner_user_id IS NULL;
CREATE INDEX account_owner ON core.account (owner_user_id, account_id) WHERE owner_user_id IS NOT NULL;

-- Every movement of money, once and for good.
CREATE TABLE core.transfer (
    transfer_id     uuid          PRIMARY KEY,
    from_account_id bigint        NOT NULL REFERENCES core.account,
    to_account_id   bigint        NOT NULL REFERENCES core.account,
    amount          numeric(19,4) NOT NULL CHECK (amount > 0),
    currency        text          NOT NULL,
    kind            text          NOT NULL CHECK (kind IN ('TRANSFER', 'OPENING', 'REVERSAL')),
    reverses        uuid          UNIQUE REFERENCES core.transfer,
    created_at      timestamptz   NOT NULL,
    CONSTRAINT between_two CHECK (from_account_id <> to_account_id),
    CONSTRAINT reversals_name_what_they_reverse CHECK ((kind = 'REVERSAL') = (reverses IS NOT NULL))
);
CREATE INDEX transfer_from ON core.transfer (from_account_id, transfer_id DESC);
CREATE INDEX transfer_to ON core.transfer (to_account_id, transfer_id DESC);

-- Two entries a transfer, written in a transaction of their own afterwards.
CREATE TABLE core.ledger (
    transfer_id uuid          NOT NULL,
    account_id  bigint        NOT NULL,
    side        text          NOT NULL CHECK (side IN ('DEBIT', 'CREDIT')),
    amount      numeric(19,4) NOT NULL CHECK (amount > 0),
    created_at  timestamptz   NOT NULL DEFAULT now(),
    PRIMARY KEY (transfer_id, account_id, side)
);
CREATE INDEX ledger_account ON core.ledger (account_id, transfer_id DESC);

-- Transfers whose entries are not written yet. A transfer puts itself here; the
-- transaction that writes its entries takes it out.
CREATE TABLE core.ledger_due (
    transfer_id uuid        PRIMARY KEY,
    created_at  timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.02);

-- Keys that callers were given, and the result of the one request that each is for.
-- status is NULL until it is used; SUCCEEDED and FAILED are final.
CREATE TABLE integration.idempotency_key (
    idempotency_key_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    client_id          text        NOT NULL,
    scope              text        NOT NULL,
    idempotency_key    text        NOT NULL,
    status             text        CHECK (status IN ('IN_PROGRESS', 'SUCCEEDED', 'FAILED')),
    request_hash       bytea       CHECK (octet_length(request_hash) = 32),
    attempt            uuid,
    transfer_id        uuid,
    error_code         text,
    response_snapshot  text,
    started_at         timestamptz,
    completed_at       timestamptz,
    created_at         timestamptz NOT NULL DEFAULT now(),
    expires_at         timestamptz NOT NULL,
    CONSTRAINT uk_idempotency_key UNIQUE (client_id, scope, idempotency_key),
    CONSTRAINT used_has_a_request CHECK ((status IS NULL) = (request_hash IS NULL) AND (status IS NULL) = (started_at IS NULL)),
    CONSTRAINT ended_is_for_good CHECK ((status IN ('SUCCEEDED', 'FAILED')) IS TRUE = (completed_at IS NOT NULL)
        AND (completed_at IS NULL) = (response_snapshot IS NULL)),
    CONSTRAINT failed_says_why CHECK ((status = 'FAILED') IS TRUE = (error_code IS NOT NULL))
) WITH (fillfactor = 60);
CREATE INDEX idempotency_key_in_progress ON integration.idempotency_key (started_at) WHERE status = 'IN_PROGRESS';
CREATE INDEX idempotency_key_opened ON integration.idempotency_key (expires_at) WHERE scope = 'open-account';
CREATE INDEX idempotency_key_unused ON integration.idempotency_key (expires_at) WHERE status IS NULL;

-- Events on their way to the broker. See entitlement.outbox_events for the lease.
CREATE TABLE integration.outbox_events (
    event_id       uuid        PRIMARY KEY,
    aggregate_type text        NOT NULL DEFAULT 'TRANSFER',
    aggregate_key  text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb       NOT NULL,
    occurred_at    timestamptz NOT NULL,
    traceparent    text        NOT NULL DEFAULT '',
    created_at     timestamptz NOT NULL DEFAULT now(),
    status         text        NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'IN_FLIGHT', 'PUBLISHED', 'FAILED')),
    attempt_count  integer     NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    next_retry_at  timestamptz NOT NULL DEFAULT now(),
    claim_token    uuid,
    locked_by      text,
    locked_at      timestamptz,
    lease_until    timestamptz,
    finished_at    timestamptz,
    published_at   timestamptz GENERATED ALWAYS AS (CASE WHEN status = 'PUBLISHED' THEN finished_at END) STORED,
    last_error     text,
    CONSTRAINT in_flight_is_leased CHECK ((status = 'IN_FLIGHT') = (claim_token IS NOT NULL)
        AND (claim_token IS NULL) = (lease_until IS NULL)),
    CONSTRAINT finished_is_terminal CHECK ((status IN ('PUBLISHED', 'FAILED')) = (finished_at IS NOT NULL))
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX outbox_events_due ON integration.outbox_events (next_retry_at) WHERE finished_at IS NULL;

-- Events that settle has handled.
CREATE TABLE integration.processed_events (
    event_id     uuid        PRIMARY KEY,
    processed_at timestamptz NOT NULL DEFAULT now()
);

-- Messages that settle could not read, as they came, until a person decides.
CREATE TABLE integration.settle_dlq (
    dead_letter_id bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    event_id       text,
    event_type     text,
    raw_message    bytea       NOT NULL,
    raw_headers    jsonb       NOT NULL,
    error          text        NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX settle_dlq_event_id ON integration.settle_dlq (event_id);

-- How far each consumer is known to have what was published; see
-- entitlement.outbox_reconciled.
CREATE TABLE integration.outbox_reconciled (
    consumer       text        PRIMARY KEY,
    up_to          uuid        NOT NULL,
    updated_at     timestamptz NOT NULL DEFAULT now(),
    republished_at timestamptz
);

-- +goose Down
DROP SCHEMA integration CASCADE;
DROP SCHEMA core CASCADE;
