-- +goose Up
-- Up to which event each consumer is known to have what was published. Event ids
-- are UUIDv7, so their order is that of time.
CREATE TABLE entitlement.outbox_reconciled (
    consumer       text        PRIMARY KEY,
    up_to          uuid        NOT NULL,
    updated_at     timestamptz NOT NULL DEFAULT now(),
    -- When missing events were last published again: what is missing after that is
    -- missing anew only when the consumer has read what was in the stream by then.
    republished_at timestamptz
);

-- +goose Down
DROP TABLE entitlement.outbox_reconciled;
