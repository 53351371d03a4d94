-- +goose Up
-- With how many rows a row was claimed: those that died with their worker are claimed
-- again in smaller parts. See pkg/lease. Rows claimed by an older version have none.
SET LOCAL lock_timeout = '5s';
ALTER TABLE notification.notifications ADD COLUMN claim_size integer CHECK (claim_size > 0);

-- +goose Down
ALTER TABLE notification.notifications DROP COLUMN claim_size;
