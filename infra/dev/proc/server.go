package proc

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Server says how a server is started, and when it is ready.
type Server struct {
	Command *exec.Cmd
	// Log is the file that gets what it prints.
	Log string
	// Ready is called until it returns nil, for at most Within.
	Ready  func(context.Context) error
	Within time.Duration
	// Stop ends a server that does not get ready.
	Stop []Step
	// PIDFile, if not empty, is where its pid is noted.
	PIDFile string
	// Users are the processes that share the server; nil if only this one uses it. When
	// no user is left the server is sent Last.
	Users *Users
	Last  syscall.Signal
	// Advice ends an error message: what to do about it.
	Advice string
}

// ErrPortTaken says that a server lost the race for its port.
var ErrPortTaken = errors.New("port taken by another program")

// Start starts the server and returns it when it is ready. The error is ErrPortTaken
// where it could not listen; others quote the end of its log, unless ctx has ended.
func (s Server) Start(ctx context.Context) (*Child, error) {
	out, log, err := openLog(s.Log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	s.Command.Stdout, s.Command.Stderr = out, out
	child, err := s.launch()
	if err != nil {
		return nil, err
	}
	if s.PIDFile != "" {
		err = child.Note(s.PIDFile)
	}
	if err = errors.Join(err, child.WaitReady(ctx, s.Within, s.Ready)); err == nil {
		return child, nil
	}
	err = errors.Join(err, child.End(s.Stop...))
	printed := log.printed()
	if slices.ContainsFunc(portTaken, func(said string) bool { return strings.Contains(printed, said) }) {
		return nil, ErrPortTaken
	}
	if ctx.Err() != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w; the end of %s:\n%s%s", err, log.path, LastLines(printed, "(it printed nothing)"), s.Advice)
}

// portTaken is what servers in C, Go, Erlang and Java print when they cannot listen.
var portTaken = []string{"Address already in use", "address already in use", "eaddrinuse", "already bound"}

func (s Server) launch() (*Child, error) {
	if s.Users == nil {
		return Launch(s.Command)
	}
	return launchWatched(s.Command, s.Users, s.Last)
}
