-- What no row may ever do, noted by the database itself while the system runs.

CREATE SCHEMA chaos;
CREATE TABLE chaos.broken (noted_at timestamptz NOT NULL DEFAULT clock_timestamp(), what text NOT NULL);
-- Which process a worker's claims came from: each process connects under a name of its own.
CREATE TABLE chaos.worker (name text PRIMARY KEY, process text NOT NULL);

-- A terminal status is for good, and only the holder of a lease settles its row.
CREATE FUNCTION chaos.watch_lease() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	leased text[] := ARRAY['IN_FLIGHT', 'PROCESSING'];
	holder text;
BEGIN
	IF OLD.finished_at IS NOT NULL AND NEW.status <> OLD.status THEN
		INSERT INTO chaos.broken (what) VALUES (format('%s %s left %s for %s', TG_TABLE_NAME, OLD.event_id, OLD.status, NEW.status));
	END IF;
	IF NEW.status = ANY (leased) AND NEW.claim_token IS DISTINCT FROM OLD.claim_token THEN
		INSERT INTO chaos.worker VALUES (NEW.locked_by, current_setting('application_name')) ON CONFLICT DO NOTHING;
	ELSIF OLD.status = ANY (leased) AND NOT NEW.status = ANY (leased) THEN
		SELECT process INTO holder FROM chaos.worker WHERE name = OLD.locked_by;
		IF holder IS DISTINCT FROM current_setting('application_name') AND OLD.lease_until > clock_timestamp() THEN
			INSERT INTO chaos.broken (what) VALUES (format('%s %s, held by %s, was settled by %s', TG_TABLE_NAME, OLD.event_id, holder, current_setting('application_name')));
		END IF;
	END IF;
	RETURN NULL;
END $$;

CREATE TRIGGER watch AFTER UPDATE ON entitlement.outbox_events FOR EACH ROW EXECUTE FUNCTION chaos.watch_lease();
CREATE TRIGGER watch AFTER UPDATE ON integration.outbox_events FOR EACH ROW EXECUTE FUNCTION chaos.watch_lease();
CREATE TRIGGER watch AFTER UPDATE ON notification.notifications FOR EACH ROW EXECUTE FUNCTION chaos.watch_lease();

-- A transfer's answer is for good. (Opening an account writes its key before its answer.)
CREATE FUNCTION chaos.watch_key() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
	IF OLD.completed_at IS NOT NULL AND (NEW.status, NEW.response_snapshot, NEW.transfer_id) IS DISTINCT FROM (OLD.status, OLD.response_snapshot, OLD.transfer_id) THEN
		INSERT INTO chaos.broken (what) VALUES (format('key %s left %s for %s', OLD.idempotency_key, OLD.status, NEW.status));
	END IF;
	RETURN NULL;
END $$;

CREATE TRIGGER watch AFTER UPDATE ON integration.idempotency_key FOR EACH ROW WHEN (OLD.response_snapshot <> '') EXECUTE FUNCTION chaos.watch_key();
