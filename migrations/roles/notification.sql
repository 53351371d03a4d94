GRANT USAGE ON SCHEMA notification TO {role};
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA notification TO {role};
-- What operators did is never forgotten.
REVOKE DELETE ON notification.acts FROM {role};
