-- Indexes are built beside running functions; see entitlement's migration of this name.
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS integration.outbox_events_published;
CREATE INDEX CONCURRENTLY outbox_events_published ON integration.outbox_events (published_at) WHERE published_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS integration.outbox_events_failed;
CREATE INDEX CONCURRENTLY outbox_events_failed ON integration.outbox_events (finished_at) WHERE finished_at IS NOT NULL AND published_at IS NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS integration.outbox_events_published;
DROP INDEX CONCURRENTLY IF EXISTS integration.outbox_events_failed;
