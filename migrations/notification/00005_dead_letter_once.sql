-- +goose NO TRANSACTION
-- +goose Up

-- Which message a raw dead letter is: one that comes again is not kept twice. NULL for
-- letters of notifications, and for those kept before.
-- +goose StatementBegin
DO $$ BEGIN
    PERFORM set_config('lock_timeout', '2s', true);
    ALTER TABLE notification.notification_dlq ADD COLUMN IF NOT EXISTS raw_hash bytea;
END $$;
-- +goose StatementEnd
DROP INDEX CONCURRENTLY IF EXISTS notification.notification_dlq_raw_hash;
CREATE UNIQUE INDEX CONCURRENTLY notification_dlq_raw_hash ON notification.notification_dlq (raw_hash);

-- +goose Down
ALTER TABLE notification.notification_dlq DROP COLUMN IF EXISTS raw_hash;
