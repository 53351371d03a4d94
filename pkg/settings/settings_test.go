package settings_test

import (
	"fmt"
	"reflect"
	"strconv"
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
		t.Errorf("the defaults are %+v", s)
	}
}

// Every number and duration has bounds that its default keeps. A value beyond them is
// refused with the setting's name and both bounds. A new setting without them fails here.
func TestBounds(t *testing.T) {
	t.Parallel()
	fields := reflect.TypeFor[settings.Settings]()
	checked := 0
	for i := range fields.NumField() {
		field := fields.Field(i)
		value := field.Type
		if value.Kind() == reflect.Slice {
			value = value.Elem()
		}
		if !reflect.Zero(value).CanInt() && !reflect.Zero(value).CanUint() && !reflect.Zero(value).CanFloat() {
			continue
		}
		checked++
		name := field.Tag.Get("env")
		b, ok := settings.BoundsOf(field)
		if !ok {
			t.Errorf("%s has no bounds: give its field the tags min and max", name)
			continue
		}
		beyond := func(bound string, by int64) string {
			if value == reflect.TypeFor[time.Duration]() {
				d, err := time.ParseDuration(bound)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				return (d + time.Duration(by)).String()
			}
			n, err := strconv.ParseInt(bound, 10, 64)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return strconv.FormatInt(n+by, 10)
		}
		says := fmt.Sprintf("%s must be %s to %s, is", name, b.Min, b.Max)
		for _, refused := range []string{beyond(b.Min, -1), beyond(b.Max, 1)} {
			if _, err := settings.LoadFrom(map[string]string{name: refused}); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s=%s: %v; want %q", name, refused, err, says)
			}
		}
		for _, taken := range []string{b.Min, b.Max} {
			if _, err := settings.LoadFrom(map[string]string{name: taken}); err != nil && strings.Contains(err.Error(), says) {
				t.Errorf("%s=%s is within its bounds: %v", name, taken, err)
			}
		}
	}
	if checked < 40 {
		t.Errorf("%d settings were checked, want 40 at least, so this test shows nothing", checked)
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
		{"PROCESSED_RETENTION", "24h", ""},                       // events still in the stream would be notified again
		{"PROCESSED_RETENTION", "240h", "OUTBOX_RETENTION=480h"}, // so would events still in the outbox
		{"IDEMPOTENCY_RETENTION", "0s", ""},                      // a retry would have a second effect
		{"TICK_BUDGET", "0s", ""},                                // ticks would do nothing
		{"TICK_POLL", "0s", ""},                                  // a busy loop
		{"TICK_LINGER", "55s", ""},                               // longer than the budget of 20s
		{"RECONCILE_AFTER", "1ms", ""},                           // rows that are not committed yet would be passed
		{"OUTBOX_RETENTION", "-1h", ""},
		{"OUTBOX_RETENTION", "1h", "RECONCILE_AFTER=2h"},         // nothing could be reconciled in time
		{"PROCESSED_RETENTION", "485h", "OUTBOX_RETENTION=480h"}, // forgotten while the outbox may still publish it
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4317", ""},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", ""},
		{"OTEL_TRACES_EXPORTER", "jaeger", ""},
		{"OTEL_TRACES_SAMPLER", "sometimes", ""},
		{"OTEL_TRACES_SAMPLER_ARG", "1.1", ""},
		{"OTEL_TRACES_SAMPLER_ARG", "half", ""},
		{"STREAM_MAX_AGE", "0s", ""},         // unlimited, unlike PROCESSED_RETENTION
		{"STREAM_MAX_BYTES", "0", ""},        // without a limit
		{"STREAM_MAX_BYTES", "1000", ""},     // full at once
		{"STREAM_REPLICAS", "2", ""},         // no majority when one is away
		{"LEASE_BACKOFF_BASE", "0s", ""},     // a busy loop
		{"LEASE_BACKOFF_BASE", "2m", ""},     // above its cap of 60s
		{"DELIVERY_BACKOFF_CAP", "10ms", ""}, // below the base of 1s
		{"DELIVERY_MAX_ATTEMPTS", "-3", ""},  // every notification would be FAILED at once
		{"FAILED_RETENTION", "1h", ""},       // gone before a person looks
		{"SENT_RETENTION", "-720h", ""},
		{"MATCHMAKING_WINDOWS", "100,-200", ""},
		{"AUDIT_RETENTION_MONTHS", "0", ""}, // this month's audit would be deleted
		{"WAKES", "perhaps", ""},
		{"GATEWAY_URL", "game.example.com", ""}, // redirects and cookies depend on it
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
			t.Errorf("%s=%s %s is accepted", c.variable, c.value, c.with)
			continue
		}
		if !strings.Contains(err.Error(), c.variable) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s=%s: %v, want one line that names the variable", c.variable, c.value, err)
		}
	}
}

// What operators see of the settings holds no secret, in whatever form an address is
// written, and marks exactly those that differ from their defaults.
func TestList(t *testing.T) {
	t.Parallel()
	given := map[string]string{
		"DATABASE_URL": "postgres://user:secret@db:5432/x?password=secret", "REDIS_URL": "redis://:secret@redis:6379/0",
		"NATS_URL": "user:secret@nats:4222", "TRANSFER_DATABASE_URL": "host=db user=x password=secret",
		"WEBHOOK_URLS": "https://one.example/secret,https://u:secret@two.example/", "OIDC_CLIENT_SECRET": "secret", "TICK_BUDGET": "7s",
		"FUNCTION_URL": "grant=http://user:secret@127.0.0.1:8081,relay=http://127.0.0.1:8082",
	}
	s, err := settings.LoadFrom(given)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range s.List() {
		if strings.Contains(one.Value, "secret") {
			t.Errorf("%s shows %q", one.Name, one.Value)
		}
		if _, ours := given[one.Name]; one.Set != ours {
			t.Errorf("%s, %q, is marked as set: %v, want %v", one.Name, one.Value, one.Set, ours)
		}
		if want := map[string]string{"DATABASE_URL": "postgres://db:5432", "WEBHOOK_URLS": "https://one.example,https://two.example", "TICK_BUDGET": "7s"}[one.Name]; want != "" && one.Value != want {
			t.Errorf("%s shows %q, want %q", one.Name, one.Value, want)
		}
		if hides := map[string]bool{"NATS_URL": true, "TRANSFER_DATABASE_URL": true, "OIDC_CLIENT_SECRET": true}[one.Name]; hides && (!one.Secret || one.Value != "") {
			t.Errorf("%s shows %q, want nothing", one.Name, one.Value)
		}
	}
}
