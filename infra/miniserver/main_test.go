package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// For an unknown command the program prints one line, with the known ones.
func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	for arguments, status := range map[string]int{
		"srve": 2, "--help": 2, "serve now": 2, "ready please": 2, "keys 2": 2, "migrate nowhere": 1,
	} {
		var out, complaints bytes.Buffer
		got := run(t.Context(), strings.Fields(arguments), &out, &complaints)
		line, whole := strings.CutSuffix(complaints.String(), "\n")
		if got != status || !whole || strings.Contains(line, "\n") || out.Len() > 0 {
			t.Errorf("miniserver %s: status %d, %q", arguments, got, complaints.String())
		}
		if status == 2 && !strings.HasSuffix(line, "serve, ready, migrate, keys, ops") {
			t.Errorf("miniserver %s does not list the commands: %s", arguments, line)
		}
	}
}

// keys prints a pair that belongs together, as a shell reads it.
func TestKeys(t *testing.T) {
	t.Parallel()
	var out, complaints bytes.Buffer
	if status := run(t.Context(), []string{"keys"}, &out, &complaints); status != 0 || complaints.Len() > 0 {
		t.Fatalf("status %d, %s", status, &complaints)
	}
	private, public, found := strings.Cut(strings.TrimSpace(out.String()), "\n")
	private, isPrivate := strings.CutPrefix(private, "IDENTITY_SIGNING_KEY=")
	public, isPublic := strings.CutPrefix(public, "IDENTITY_VERIFY_KEYS=")
	if !found || !isPrivate || !isPublic {
		t.Fatalf("it printed %q", out.String())
	}
	if _, err := auth.NewSigner(strings.Trim(private, "'")); err != nil {
		t.Error(err)
	}
	if _, err := auth.NewVerifier("grant", strings.Trim(public, "'")); err != nil {
		t.Error(err)
	}
}
