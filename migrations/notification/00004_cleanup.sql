-- Indexes are built beside running functions; see entitlement's migration of this name.
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS notification.notifications_sent_at;
CREATE INDEX CONCURRENTLY notifications_sent_at ON notification.notifications (sent_at) WHERE sent_at IS NOT NULL;
DROP INDEX CONCURRENTLY IF EXISTS notification.notifications_failed;
CREATE INDEX CONCURRENTLY notifications_failed ON notification.notifications (finished_at) WHERE finished_at IS NOT NULL AND sent_at IS NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS notification.notifications_sent_at;
DROP INDEX CONCURRENTLY IF EXISTS notification.notifications_failed;
