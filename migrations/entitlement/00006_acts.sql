-- Indexes are built beside running functions, so outside a transaction.
-- +goose NO TRANSACTION
-- +goose Up

-- What operators did to many rows here, and why: see pkg/act. A batch changes rows and
-- this record in one transaction, so progress is exact and nothing happens unrecorded.
CREATE TABLE IF NOT EXISTS entitlement.acts (
    act_id       uuid        PRIMARY KEY,
    kind         text        NOT NULL,
    queue        text        NOT NULL,
    filter       jsonb       NOT NULL,
    actor        text        NOT NULL,
    reason       text        NOT NULL CHECK (char_length(reason) BETWEEN 1 AND 500),
    idem_key     text        NOT NULL,
    request_hash bytea       NOT NULL CHECK (octet_length(request_hash) = 32),
    status       text        NOT NULL DEFAULT 'RUNNING' CHECK (status IN ('RUNNING', 'STOPPED', 'DONE')),
    per_second   integer     NOT NULL CHECK (per_second > 0),
    at_most      bigint      NOT NULL CHECK (at_most > 0),
    done         bigint      NOT NULL DEFAULT 0 CHECK (done BETWEEN 0 AND at_most),
    skipped      bigint      NOT NULL DEFAULT 0,
    position     text        NOT NULL DEFAULT '',
    next_at      timestamptz NOT NULL DEFAULT now(),
    tries        integer     NOT NULL DEFAULT 0,
    last_error   text,
    stopped_by   text,
    created_at   timestamptz NOT NULL DEFAULT now(),
    finished_at  timestamptz,
    CONSTRAINT done_is_finished CHECK ((status = 'DONE') = (finished_at IS NOT NULL)),
    CONSTRAINT one_per_key UNIQUE (actor, idem_key)
);
CREATE INDEX IF NOT EXISTS acts_running ON entitlement.acts (next_at) WHERE status = 'RUNNING';

-- FAILED rows in the order in which acts walk through them: a statement that failed many
-- rows gave all of them the same time, so the time alone is no position.
DROP INDEX CONCURRENTLY IF EXISTS entitlement.outbox_events_failed_in_order;
CREATE INDEX CONCURRENTLY outbox_events_failed_in_order ON entitlement.outbox_events (finished_at, event_id) WHERE finished_at IS NOT NULL AND published_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS entitlement.outbox_events_failed;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS entitlement.outbox_events_failed;
CREATE INDEX CONCURRENTLY outbox_events_failed ON entitlement.outbox_events (finished_at) WHERE finished_at IS NOT NULL AND published_at IS NULL;
DROP INDEX CONCURRENTLY IF EXISTS entitlement.outbox_events_failed_in_order;
DROP TABLE IF EXISTS entitlement.acts;
