package proc_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// Java says that its port is taken, and prints long stack traces after that.
func TestPortTakenIsFoundAnywhereInTheLog(t *testing.T) {
	t.Parallel()
	_, err := proc.Server{
		Command: exec.Command("sh", "-c", "echo Address already in use; seq 10000; exit 1"),
		Log:     filepath.Join(t.TempDir(), "log"), Within: time.Minute,
		Ready: func(context.Context) error { return errors.New("another program answers") },
	}.Start(t.Context())
	if !errors.Is(err, proc.ErrPortTaken) {
		t.Errorf("%v; want ErrPortTaken", err)
	}
}
