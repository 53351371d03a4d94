package keycloak

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	progressEvery = 10 * time.Second
	// outputWait is how long a program's children may keep its output open after it.
	outputWait = time.Second
	// quotedLines bounds what errors quote of a program's output.
	quotedLines = 12
)

// runBounded runs a program that ends by itself. It is ended, with all that it
// started, when ctx ends or after limit. progress, if not nil, is called now and then
// meanwhile.
func runBounded(ctx context.Context, cmd *exec.Cmd, limit time.Duration, progress func(elapsed time.Duration)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var printed bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &printed
	cmd.WaitDelay = outputWait
	running, err := launch(cmd)
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
			return fmt.Errorf("%s: %w\n%s", shortCommand(cmd), running.Err(), lastLines(printed.String()))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s: %w", shortCommand(cmd), context.Cause(ctx)), running.end())
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

func lastLines(printed string) string {
	lines := strings.Split(strings.TrimSpace(printed), "\n")
	return strings.Join(lines[max(0, len(lines)-quotedLines):], "\n")
}
