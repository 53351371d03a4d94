package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/test/kit"
)

// runDir turns this test binary into make run, with its files in that directory.
const runDir = "LOCAL_RUN_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(runDir); dir != "" {
		root, err := kit.Root()
		if err == nil {
			err = (&Local{Dir: dir, Programs: filepath.Join(root, ".local", "deps"), Out: os.Stdout}).Run(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "make run:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(kit.Main(m))
}

// When make run cannot make the functions, it prints one line that says why, and stops
// what it had started.
func TestRunThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	for setting, says := range map[string]string{
		"MATCHMAKING_RANKED=nope": "MATCHMAKING_RANKED", // found when the functions are made
		"LEASE_BATCH=0":           "LEASE_BATCH",        // found when the settings are read
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			t.Cleanup(func() {
				if err := home.Remove(filepath.Join(dir, "postgres")); err != nil {
					t.Error(err)
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // it may have to download servers
			defer cancel()
			run := exec.CommandContext(ctx, os.Args[0])
			run.Env = append(os.Environ(), runDir+"="+dir, setting)
			var said bytes.Buffer
			run.Stderr = &said
			if err := run.Run(); run.ProcessState == nil || run.ProcessState.ExitCode() != 1 {
				t.Fatalf("it ended with %v, want status 1: %s", err, said.String())
			}
			line := strings.TrimSuffix(said.String(), "\n")
			if strings.Contains(line, "\n") || !strings.Contains(line, says) {
				t.Errorf("it printed %q, want one line with %s", line, says)
			}
			for _, server := range []string{"postgres", "redis"} {
				log, err := os.ReadFile(filepath.Join(dir, server, server+".log"))
				if err != nil || !strings.Contains(string(log), map[string]string{"postgres": "database system is shut down", "redis": "ready to exit"}[server]) {
					t.Errorf("%s was not started and stopped: %v\n%s", server, err, log)
				}
			}
		})
	}
}
