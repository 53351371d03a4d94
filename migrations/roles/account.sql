GRANT USAGE ON SCHEMA account TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA account TO {role};
-- What operators did is never forgotten.
REVOKE DELETE ON account.acts FROM {role};
