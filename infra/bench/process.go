package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/auth"
)

// exec starts a program with nothing but this environment and a free PORT.
func (b *bench) exec(ctx context.Context, program, log string, environment ...string) (*proc.Child, int, error) {
	port, err := proc.FreePort(0)
	if err != nil {
		return nil, 0, err
	}
	command := exec.CommandContext(ctx, program)
	command.Env = append(environment, "PORT="+strconv.Itoa(port))
	child, err := startLogged(command, log)
	return child, port, err
}

// startLogged starts a command that prints to a file.
func startLogged(command *exec.Cmd, log string) (*proc.Child, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	command.Stdout, command.Stderr = file, file
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for us only
	return proc.Start(command)
}

// inOrder lets a program end in order.
var inOrder = proc.Step{Signal: syscall.SIGTERM, Wait: 15 * time.Second}

// answers waits for the first 200 at path.
func answers(ctx context.Context, address, path string, poll time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	request := []byte("GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n\r\n")
	for {
		c, err := dial(ctx, address, "")
		if err == nil {
			err = c.send(request)
			c.close()
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s%s does not answer: %w", address, path, err)
		case <-time.After(poll):
		}
	}
}

// statementKeys returns the setting without which a function does not start alone.
func statementKeys() (string, error) {
	_, public, err := auth.NewKeyPair()
	return "IDENTITY_VERIFY_KEYS=" + public, err
}
