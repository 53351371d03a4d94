// Command miniserver is the one program of the image.
//
//	miniserver [serve]               run FUNCTION, or all functions, until SIGTERM
//	miniserver ready                 ask the one that runs whether it is ready
//	miniserver migrate [domain ...]  bring the databases up to date, all or these
//	miniserver keys                  print a key pair for the gateway's statements
//	miniserver ops ...               see what is stuck, and mend it; alone it lists its commands
//
// Its status is 0, 1 with one line that says what failed, or 2 for a command that
// it does not know.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
)

// command is a subcommand of the program.
type command struct {
	name    string
	takes   bool // arguments
	perform func(ctx context.Context, arguments []string, out io.Writer) error
}

var commands = []command{
	{"serve", false, serve},
	{"ready", false, ready},
	{"migrate", true, migrate},
	{"keys", false, keys},
	{"ops", true, ops},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run does what the arguments say and returns the program's status.
func run(ctx context.Context, arguments []string, out, complaints io.Writer) int {
	if len(arguments) == 0 {
		arguments = []string{"serve"}
	}
	at := slices.IndexFunc(commands, func(c command) bool { return c.name == arguments[0] })
	if at < 0 {
		fmt.Fprintf(complaints, "miniserver: there is no command %q; they are %s\n", arguments[0], names())
		return 2
	}
	chosen := commands[at]
	if len(arguments) > 1 && !chosen.takes {
		fmt.Fprintf(complaints, "miniserver: %s takes no arguments; the commands are %s\n", chosen.name, names())
		return 2
	}
	if err := chosen.perform(ctx, arguments[1:], out); err != nil {
		fmt.Fprintln(complaints, "miniserver:", err)
		return 1
	}
	return 0
}

func names() string {
	var all []string
	for _, c := range commands {
		all = append(all, c.name)
	}
	return strings.Join(all, ", ")
}
