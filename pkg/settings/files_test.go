package settings_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/settings"
)

// A secret may come from a file. A file that cannot be used is refused in one line that
// names its variable and does not show the secret.
func TestFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	given := map[string]string{
		"REDIS_URL_FILE": file("redis", "redis://:secret@redis:6379/0\n"),
		"NATS_URL_FILE":  file("nats", "nats://nats:4222"),
		// A setting by this name, not the file of another setting.
		"AGONES_CERT_FILE": "/nowhere",
	}
	s, err := settings.LoadFrom(given)
	if err != nil {
		t.Fatal(err)
	}
	if s.RedisURL != "redis://:secret@redis:6379/0" || s.NATSURL != "nats://nats:4222" || s.AgonesCert != "/nowhere" {
		t.Errorf("the settings are %q, %q, %q; want the files' texts and the name of the certificate", s.RedisURL, s.NATSURL, s.AgonesCert)
	}
	if len(given) != 3 {
		t.Errorf("the caller's environment was changed: %v", given)
	}
	for name, environment := range map[string]map[string]string{
		"missing":  {"REDIS_URL_FILE": filepath.Join(folder, "none")},
		"folder":   {"REDIS_URL_FILE": folder},
		"both":     {"REDIS_URL_FILE": file("both", "secret"), "REDIS_URL": "redis://secret"},
		"too long": {"REDIS_URL_FILE": file("long", strings.Repeat("secret", 20_000))},
	} {
		_, err := settings.LoadFrom(environment)
		if err == nil {
			t.Errorf("%s: the file is accepted", name)
		} else if text := err.Error(); !strings.Contains(text, "REDIS_URL_FILE") || strings.Contains(text, "secret") || strings.Contains(text, "\n") {
			t.Errorf("%s: %s, want one line with REDIS_URL_FILE and no secret", name, text)
		}
	}
}
