// Command func is Knative's func CLI, version 0.44.0, with what later versions do
// for functions in Go without Docker and this one does not do yet:
//
//   - the function's module may have any path, and sub-packages (scaffold.go);
//   - `func run` gives the process its environment and what -e says, listens where
//     --address says, and ends it with SIGTERM (run.go);
//   - `func build` leaves out what .funcignore names, and makes the image for
//     --platforms only (build.go).
//
// Everything else is the CLI's own code. When a later version can be had, this
// directory becomes one line in infra/tools/go.mod.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ory/viper"
	"knative.dev/func/cmd"
	"knative.dev/func/pkg/builders"
	"knative.dev/func/pkg/functions"
)

// version is of knative.dev/func in go.mod, whose own would say v0.0.0.
const version = "v0.44.0"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// Host is the builder without Docker, which this version hides.
	if err := os.Setenv("FUNC_ENABLE_HOST_BUILDER", "true"); err != nil {
		fail(err)
	}
	run, build := &runner{}, &builder{}
	root := cmd.NewRootCmd(cmd.RootCommandConfig{
		Name: "func", Version: cmd.Version{Vers: version},
		NewClient: func(c cmd.ClientConfig, options ...functions.Option) (*functions.Client, func()) {
			if !viper.GetBool("container") {
				options = append(options, functions.WithRunner(run))
			}
			if viper.GetString("builder") == builders.Host {
				build.verbose = c.Verbose
				options = append(options, functions.WithBuilder(build))
			}
			return cmd.NewClient(c, options...)
		},
	})
	for _, command := range root.Commands() {
		switch command.Name() {
		case "run":
			command.Flags().StringVar(&run.address, "address", "", "host:port to listen on. Unset: 127.0.0.1:8080, or another port where that is taken.")
			container := command.Flags().Lookup("container")
			container.DefValue = "false"
			if err := container.Value.Set(container.DefValue); err != nil {
				fail(err)
			}
		case "build", "deploy":
			command.Flags().StringSliceVar(&build.platforms, "platforms", nil, "Platforms of the image with the builder host, such as linux/amd64,linux/arm64. Unset: those that the CLI suggests.")
		}
	}
	err := root.ExecuteContext(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		os.Exit(130)
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "Error:", err)
	os.Exit(1)
}
