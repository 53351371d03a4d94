-- +goose Up
CREATE SCHEMA IF NOT EXISTS entitlement;

-- What a user owns. The row's lock orders its writes; version is that order.
-- fillfactor leaves room for the next version on the same page (a HOT update).
CREATE TABLE entitlement.entitlements (
    user_id            text        NOT NULL CHECK (char_length(user_id) BETWEEN 1 AND 128),
    stock_keeping_unit text        NOT NULL CHECK (char_length(stock_keeping_unit) BETWEEN 1 AND 128),
    status             text        NOT NULL CHECK (status IN ('ACTIVE', 'REVOKED')),
    version            bigint      NOT NULL CHECK (version > 0),
    updated_at         timestamptz NOT NULL,
    PRIMARY KEY (user_id, stock_keeping_unit)
) WITH (fillfactor = 80);

-- The stored answer of every write, in the transaction of its effect.
CREATE TABLE entitlement.idempotency_keys (
    caller        text        NOT NULL,
    operation     text        NOT NULL,
    idem_key      text        NOT NULL,
    request_hash  bytea       NOT NULL CHECK (octet_length(request_hash) = 32),
    status_code   smallint    NOT NULL,
    response_body text        NOT NULL,
    etag          text        NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz NOT NULL,
    PRIMARY KEY (caller, operation, idem_key)
);
CREATE INDEX idempotency_keys_expires_at ON entitlement.idempotency_keys (expires_at);

-- Purchases whose refund has arrived. A purchase event that comes later than
-- its refund must not give the item back.
CREATE TABLE entitlement.refunded_purchases (
    user_id            text        NOT NULL,
    stock_keeping_unit text        NOT NULL,
    purchase_id        text        NOT NULL,
    refunded_at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, stock_keeping_unit, purchase_id)
);

-- Who changed what, and why. One partition a month; the cleanup function makes
-- them ahead and drops old ones. The DEFAULT partition takes what no month has.
CREATE TABLE entitlement.entitlement_audit (
    audit_id           uuid        NOT NULL,
    occurred_at        timestamptz NOT NULL,
    user_id            text        NOT NULL,
    stock_keeping_unit text        NOT NULL,
    operation          text        NOT NULL CHECK (operation IN ('grant', 'revoke')),
    status             text        NOT NULL CHECK (status IN ('ACTIVE', 'REVOKED')),
    version            bigint      NOT NULL,
    reason             text        NOT NULL,
    purchase_id        text        NOT NULL,
    caller             text        NOT NULL,
    idem_key           text        NOT NULL,
    event_id           uuid        NOT NULL,
    PRIMARY KEY (audit_id, occurred_at)
) PARTITION BY RANGE (occurred_at);
CREATE INDEX entitlement_audit_history ON entitlement.entitlement_audit (user_id, stock_keeping_unit, version);
CREATE TABLE entitlement.entitlement_audit_default PARTITION OF entitlement.entitlement_audit DEFAULT;

-- Events on their way to the broker. pkg/lease explains the index and the
-- fillfactor: a claim changes no indexed column and finds room on its page.
CREATE TABLE entitlement.outbox_events (
    event_id      uuid        PRIMARY KEY,
    aggregate_key text        NOT NULL,
    event_type    text        NOT NULL,
    payload       jsonb       NOT NULL,
    occurred_at   timestamptz NOT NULL,
    traceparent   text        NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT now(),
    status        text        NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'IN_FLIGHT', 'PUBLISHED', 'FAILED')),
    attempt_count integer     NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    next_retry_at timestamptz NOT NULL DEFAULT now(),
    claim_token   uuid,
    locked_by     text,
    locked_at     timestamptz,
    lease_until   timestamptz,
    finished_at   timestamptz,
    published_at  timestamptz GENERATED ALWAYS AS (CASE WHEN status = 'PUBLISHED' THEN finished_at END) STORED,
    last_error    text,
    CONSTRAINT in_flight_is_leased CHECK ((status = 'IN_FLIGHT') = (claim_token IS NOT NULL)
        AND (claim_token IS NULL) = (lease_until IS NULL)),
    CONSTRAINT finished_is_terminal CHECK ((status IN ('PUBLISHED', 'FAILED')) = (finished_at IS NOT NULL))
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX outbox_events_due ON entitlement.outbox_events (next_retry_at) WHERE finished_at IS NULL;

-- +goose Down
DROP SCHEMA entitlement CASCADE;
