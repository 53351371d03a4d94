GRANT USAGE ON SCHEMA core, integration TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA core, integration TO {role};
-- What moved stays as it was written.
REVOKE UPDATE, DELETE ON core.transfer, core.ledger FROM {role};
-- The functions of this version and of those before, whose instances may still run.
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA core, integration TO {role};
-- What operators did is never forgotten.
REVOKE DELETE ON integration.acts FROM {role};
