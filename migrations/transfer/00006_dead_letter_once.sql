-- +goose NO TRANSACTION
-- +goose Up

-- Which message a dead letter is: one that comes again is not kept twice. NULL for
-- those kept before.
-- +goose StatementBegin
DO $$ BEGIN
    PERFORM set_config('lock_timeout', '2s', true);
    ALTER TABLE integration.settle_dlq ADD COLUMN IF NOT EXISTS raw_hash bytea;
END $$;
-- +goose StatementEnd
DROP INDEX CONCURRENTLY IF EXISTS integration.settle_dlq_raw_hash;
CREATE UNIQUE INDEX CONCURRENTLY settle_dlq_raw_hash ON integration.settle_dlq (raw_hash);

-- +goose Down
ALTER TABLE integration.settle_dlq DROP COLUMN IF EXISTS raw_hash;
