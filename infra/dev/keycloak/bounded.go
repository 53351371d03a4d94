package keycloak

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const progressEvery = 10 * time.Second

// runWatched runs a command that ends by itself, and meanwhile calls progress, if not nil,
// from time to time. Its error quotes the last output of the command.
func runWatched(cmd *exec.Cmd, progress func(elapsed time.Duration)) error {
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	running, err := proc.Start(cmd)
	if err != nil {
		return err
	}
	began := time.Now()
	ticks := time.NewTicker(progressEvery)
	defer ticks.Stop()
	for {
		select {
		case <-running.Ended:
			if running.Err() == nil {
				return nil
			}
			return fmt.Errorf("%s: %w\n%s", shortCommand(cmd), running.Err(), proc.LastLines(printed.String(), ""))
		case <-ticks.C:
			if progress != nil {
				progress(time.Since(began))
			}
		}
	}
}

// shortCommand names a command in an error, without most of its options.
func shortCommand(cmd *exec.Cmd) string {
	const shown = 2
	args := cmd.Args[1:]
	return strings.Join(append([]string{filepath.Base(cmd.Path)}, args[:min(shown, len(args))]...), " ")
}
