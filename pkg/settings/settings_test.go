package settings_test

import (
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/settings"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	s, err := settings.LoadFrom(map[string]string{})
	if err != nil {
		t.Fatal(err)
	}
	if s.LeaseBatch != 200 || s.LeaseDuration != 30*time.Second || s.LeaseMaxAttempts != 10 || s.IdempotencyRetention != 24*time.Hour {
		t.Errorf("%+v", s)
	}
}

// A value that would break a promise silently is refused, in one line that names
// its variable.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ variable, value, with string }{
		{"PORT", "0", ""},
		{"PORT", "http", ""},
		{"LEASE_BATCH", "501", ""},
		{"LEASE_BATCH", "0", ""},
		{"LEASE_MAX_ATTEMPTS", "0", ""},
		{"LEASE_DURATION", "10ms", ""},
		{"POSTGRES_POOL_SIZE", "0", ""},
		{"NOTIFICATION_CHANNEL", "pigeon", ""},
		{"NOTIFICATION_CHANNEL", "webhook", ""},
		{"WEBHOOK_TIMEOUT", "20s", ""},
		{"SCHEDULE", "sometimes", ""},
		{"PROCESSED_RETENTION", "24h", ""},                       // what the stream still holds would be told again
		{"PROCESSED_RETENTION", "240h", "OUTBOX_RETENTION=480h"}, // what the outbox still holds, too
		{"IDEMPOTENCY_RETENTION", "0s", ""},                      // a retry would have a second effect
		{"TICK_BUDGET", "0s", ""},                                // ticks would do nothing
		{"TICK_POLL", "0s", ""},                                  // a busy loop
		{"TICK_LINGER", "55s", ""},                               // longer than the budget of 20s
		{"RECONCILE_AFTER", "0s", ""},                            // rows that are not committed yet would be passed
		{"AUDIT_RETENTION_MONTHS", "0", ""},                      // this month's audit would go
		{"WAKES", "perhaps", ""},
		{"GATEWAY_URL", "game.example.com", ""}, // redirects and cookies hang on it
		{"GATEWAY_URL", "https://game.example.com/api", ""},
		{"OIDC_AUDIENCE", "miniserver-web", ""}, // ID tokens would do as access tokens
		{"OIDC_SCOPES", "profile", ""},
		{"SESSION_IDLE", "0s", ""},
		{"SESSION_IDLE", "200h", ""}, // longer than the session
		{"LIMIT_PLAYER_RATE", "0", ""},
		{"LIMIT_SERVICE_BURST", "0", ""},
		{"LIMIT_ANONYMOUS_RATE", "0", ""},
		{"OVERVIEW_TIMEOUT", "0s", ""},
		{"STREAM_LIFETIME", "5m", ""}, // the platform would cut it
		{"TRANSFER_BROKER", "kafka", ""},
		{"RABBITMQ_URL", "http://rabbitmq", ""},
		{"TRANSFER_ORPHAN_AFTER", "5s", ""}, // TX1 may still run
	} {
		environment := map[string]string{c.variable: c.value}
		if name, value, ok := strings.Cut(c.with, "="); ok {
			environment[name] = value
		}
		_, err := settings.LoadFrom(environment)
		if err == nil {
			t.Errorf("%s=%s %s is taken", c.variable, c.value, c.with)
			continue
		}
		if !strings.Contains(err.Error(), c.variable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%s: %v", c.variable, c.value, err)
		}
	}
}
