// Command lambda runs a function on AWS Lambda (runtime provided.al2023, as the
// program "bootstrap"). HTTP comes in as the events of function URLs and of API
// Gateway's HTTP APIs, ticks as the scheduled events of EventBridge.
//
// With FUNCTION unset it is the gateway with every function in its process; with
// FUNCTION=relay and so on it is that function, ticked by its schedule.
// template.yaml has one of each. Nothing else in the system knows Lambda.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	function "github.com/miniserversystem/miniserver"
	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/pkg/telemetry"
)

func main() {
	a, f, err := load()
	if err == nil {
		err = f.Start(context.Background(), nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "miniserver:", err)
		reportInitError(os.Getenv(runtimeAPI), err)
		os.Exit(1)
	}
	// Lambda freezes the process between invocations and ends it after a long idle time.
	// It sends SIGTERM only to processes that ask for it, and kills them 500 ms later.
	answer := func(ctx context.Context, event json.RawMessage) (any, error) {
		defer func() {
			if err := f.Flush(context.WithoutCancel(ctx)); err != nil {
				a.log.WarnContext(ctx, "traces not sent", "error", err.Error())
			}
		}()
		return a.handle(ctx, event)
	}
	lambda.StartWithOptions(answer, lambda.WithEnableSIGTERM(func() {
		_ = f.Stop(context.Background()) // it has no error
		os.Exit(0)
	}))
}

// load returns what the environment asks for.
func load() (*adapter, *function.Function, error) {
	s, err := settings.Load()
	if err == nil {
		err = unfit(s)
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := function.Load(s)
	if err != nil {
		return nil, nil, err
	}
	front := s.Function
	if front == "" {
		front = functions.GatewayName
	}
	return &adapter{local: f.Local(), function: s.Function, front: front, log: telemetry.NewLogger(os.Stdout, s.LogLevel)}, f, nil
}

// unfit returns an error for settings that do harm here: what a process does after
// its answer is frozen half-way, with the rows that it holds, until the next
// invocation.
func unfit(s settings.Settings) error {
	switch {
	case s.Wakes:
		return fmt.Errorf("settings: WAKES must be false on AWS Lambda: a process does nothing after its answer")
	case s.Function == "" && s.Schedule != "off":
		return fmt.Errorf("settings: SCHEDULE must be off on AWS Lambda: a process does nothing between its invocations")
	}
	return nil
}
