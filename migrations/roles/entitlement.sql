GRANT USAGE ON SCHEMA entitlement TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA entitlement TO {role};
-- The audit is written and read, through the table as a whole; nobody changes it.
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT relid FROM pg_partition_tree('entitlement.entitlement_audit') LOOP
        EXECUTE format('REVOKE ALL ON %s FROM {role}', part);
    END LOOP;
END $$;
GRANT SELECT, INSERT ON entitlement.entitlement_audit TO {role};
-- What operators did is never forgotten.
REVOKE DELETE ON entitlement.acts FROM {role};
