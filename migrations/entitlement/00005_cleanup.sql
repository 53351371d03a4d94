-- Indexes are built beside running functions, so outside a transaction; a build that
-- was cut off leaves an invalid index, which the next try removes.
-- +goose NO TRANSACTION
-- +goose Up

-- What cleanup looks for, and nothing else: it must not walk over rows that stay. As
-- with the index of what is due, a claim changes neither the columns nor the
-- conditions, and stays HOT: both times are NULL until a row is finished.
DROP INDEX CONCURRENTLY IF EXISTS entitlement.outbox_events_published;
CREATE INDEX CONCURRENTLY outbox_events_published ON entitlement.outbox_events (published_at) WHERE published_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS entitlement.outbox_events_failed;
CREATE INDEX CONCURRENTLY outbox_events_failed ON entitlement.outbox_events (finished_at) WHERE finished_at IS NOT NULL AND published_at IS NULL;
-- Of the DEFAULT partition alone: the months' are dropped whole.
DROP INDEX CONCURRENTLY IF EXISTS entitlement.entitlement_audit_default_occurred_at;
CREATE INDEX CONCURRENTLY entitlement_audit_default_occurred_at ON entitlement.entitlement_audit_default (occurred_at);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS entitlement.outbox_events_published;
DROP INDEX CONCURRENTLY IF EXISTS entitlement.outbox_events_failed;
DROP INDEX CONCURRENTLY IF EXISTS entitlement.entitlement_audit_default_occurred_at;
