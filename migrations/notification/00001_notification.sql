-- +goose Up
CREATE SCHEMA IF NOT EXISTS notification;

-- Which events were accepted: the last line against duplicates. A row outlives
-- whatever can still come back from the broker.
CREATE TABLE notification.processed_events (
    event_id     uuid        PRIMARY KEY,
    processed_at timestamptz NOT NULL DEFAULT now()
);

-- One row an event and recipient. See entitlement.outbox_events for the lease.
CREATE TABLE notification.notifications (
    notification_id uuid        PRIMARY KEY,
    event_id        uuid        NOT NULL,
    user_id         text        NOT NULL,
    event_type      text        NOT NULL,
    payload         jsonb       NOT NULL,
    occurred_at     timestamptz NOT NULL,
    traceparent     text        NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL DEFAULT now(),
    read_at         timestamptz,
    status          text        NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'SENT', 'FAILED')),
    attempt_count   integer     NOT NULL DEFAULT 0 CHECK (attempt_count >= 0),
    next_retry_at   timestamptz NOT NULL DEFAULT now(),
    claim_token     uuid,
    locked_by       text,
    locked_at       timestamptz,
    lease_until     timestamptz,
    finished_at     timestamptz,
    sent_at         timestamptz GENERATED ALWAYS AS (CASE WHEN status = 'SENT' THEN finished_at END) STORED,
    last_error      text,
    CONSTRAINT one_per_event_and_recipient UNIQUE (event_id, user_id),
    CONSTRAINT processing_is_leased CHECK ((status = 'PROCESSING') = (claim_token IS NOT NULL)
        AND (claim_token IS NULL) = (lease_until IS NULL)),
    CONSTRAINT finished_is_terminal CHECK ((status IN ('SENT', 'FAILED')) = (finished_at IS NOT NULL))
) WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);
CREATE INDEX notifications_due ON notification.notifications (next_retry_at) WHERE finished_at IS NULL;
CREATE INDEX notifications_inbox ON notification.notifications (user_id, notification_id DESC);

-- Notifications that could not be delivered, kept until a person decides. A dead letter
-- without a notification_id is a message that could not even be read.
CREATE TABLE notification.notification_dlq (
    dead_letter_id  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    notification_id uuid        UNIQUE,
    event_id        text,
    user_id         text,
    event_type      text,
    payload         jsonb,
    raw_message     bytea,
    raw_headers     jsonb,
    error           text        NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT notification_or_raw CHECK ((notification_id IS NULL) = (raw_message IS NOT NULL))
);

CREATE INDEX notification_dlq_event_id ON notification.notification_dlq (event_id);

-- +goose Down
DROP SCHEMA notification CASCADE;
