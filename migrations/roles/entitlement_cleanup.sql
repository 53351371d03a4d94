GRANT USAGE, CREATE ON SCHEMA entitlement TO {role};
-- What is kept for a time only. It takes no part in what users own.
GRANT SELECT, UPDATE, DELETE ON ALL TABLES IN SCHEMA entitlement TO {role};
REVOKE UPDATE, DELETE ON entitlement.entitlements FROM {role};
REVOKE UPDATE, DELETE ON entitlement.acts FROM {role};
-- Only the owner makes and drops partitions, of the audit and of nothing else.
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT relid FROM pg_partition_tree('entitlement.entitlement_audit') LOOP
        -- Only where it is another's: this locks out grants.
        IF (SELECT relowner FROM pg_class WHERE oid = part) <> '{role}'::regrole THEN
            EXECUTE format('ALTER TABLE %s OWNER TO {role}', part);
        END IF;
        EXECUTE format('GRANT ALL ON %s TO {role}', part);
    END LOOP;
END $$;
