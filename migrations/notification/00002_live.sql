-- The index is built beside running functions, so outside a transaction; a build
-- that was cut off leaves an invalid index, which the next try removes.
-- +goose NO TRANSACTION
-- +goose Up
DROP INDEX CONCURRENTLY IF EXISTS notification.notifications_sent;
-- What was sent to a user, in the order of sending. sent_at is NULL until then, so
-- that a claim changes neither the columns nor the condition, and stays HOT.
CREATE INDEX CONCURRENTLY notifications_sent ON notification.notifications (user_id, sent_at) WHERE sent_at IS NOT NULL;

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS notification.notifications_sent;
