-- +goose Up

-- Audit partitions of this month and the next three, so that no grant has to go to
-- the DEFAULT one before the first cleanup. Where DEFAULT has rows, cleanup makes
-- them, without reading DEFAULT under a lock.
-- +goose StatementBegin
DO $$
DECLARE
    first timestamptz;
    name text;
BEGIN
    PERFORM set_config('lock_timeout', '2s', true);
    PERFORM set_config('timezone', 'UTC', true);
    IF EXISTS (SELECT FROM entitlement.entitlement_audit_default) THEN
        RETURN;
    END IF;
    FOR ahead IN 0..3 LOOP
        first := date_trunc('month', now()) + make_interval(months => ahead);
        name := 'entitlement_audit_y' || to_char(first, 'YYYY"m"MM');
        IF to_regclass('entitlement.' || name) IS NULL THEN
            EXECUTE format('CREATE TABLE entitlement.%I (LIKE entitlement.entitlement_audit INCLUDING ALL)', name);
            EXECUTE format('ALTER TABLE entitlement.entitlement_audit ATTACH PARTITION entitlement.%I FOR VALUES FROM (%L) TO (%L)',
                name, first, first + interval '1 month');
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- Partitions hold audit rows: they stay.
SELECT;
