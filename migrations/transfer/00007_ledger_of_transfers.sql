-- +goose NO TRANSACTION
-- +goose Up

-- An entry is of a transfer. That its account exists follows: TX2 takes it from the
-- transfer, whose own keys say so. A second foreign key, to core.account, would lock the
-- row of a busy account for each entry, which TX1 then has to work around.
--
-- NOT VALID looks at no entry while it has its locks; VALIDATE does, beside everybody who
-- reads and writes.
-- +goose StatementBegin
DO $$ BEGIN
    PERFORM set_config('lock_timeout', '2s', true);
    ALTER TABLE core.ledger DROP CONSTRAINT IF EXISTS ledger_of_a_transfer;
    ALTER TABLE core.ledger ADD CONSTRAINT ledger_of_a_transfer FOREIGN KEY (transfer_id) REFERENCES core.transfer NOT VALID;
END $$;
-- +goose StatementEnd
ALTER TABLE core.ledger VALIDATE CONSTRAINT ledger_of_a_transfer;

-- +goose Down
ALTER TABLE core.ledger DROP CONSTRAINT IF EXISTS ledger_of_a_transfer;
