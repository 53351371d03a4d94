-- +goose Up
-- Up to which event each consumer is known to have what was published. Event ids
-- are UUIDv7, so their order is that of time.
CREATE TABLE entitlement.outbox_reconciled (
    consumer   text        PRIMARY KEY,
    up_to      uuid        NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT now()
);

-- +goose Down
DROP TABLE entitlement.outbox_reconciled;
