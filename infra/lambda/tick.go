package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// tick ticks the function that a scheduled event names, or the one that this process
// is, and returns its report. It drains, and lingers, as TICK_BUDGET and TICK_LINGER
// say.
func (a *adapter) tick(ctx context.Context, raw json.RawMessage) (any, error) {
	name, err := a.ticked(raw)
	if err != nil {
		return nil, failure("UnknownTick", err)
	}
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+name+tick.Path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := a.local.RoundTrip(request)
	if err != nil && ctx.Err() != nil {
		return nil, failure("TickTimeout", fmt.Errorf(
			"the tick of %s had not ended when the invocation had to; TICK_BUDGET must be shorter than the timeout on Lambda, by 5s or more", name))
	}
	if err != nil {
		return nil, failure("TickFailed", fmt.Errorf("tick of %s: %w", name, err))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, fn.MaxBodyBytes))
	if err != nil {
		return nil, failure("TickFailed", fmt.Errorf("tick of %s: %w", name, err))
	}
	if response.StatusCode != http.StatusOK {
		// The log has the cause.
		said := response.Status
		if p, ok := problem.Parse(body); ok {
			said = fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail)
		}
		return nil, failure("TickFailed", fmt.Errorf("tick of %s: %s", name, said))
	}
	var report lease.Report
	if err := json.Unmarshal(body, &report); err != nil {
		return nil, failure("TickFailed", fmt.Errorf("tick of %s: %w", name, err))
	}
	return report, nil
}

// ticked returns which function an event is for. A process that is one function refuses
// ticks of another: that would be a schedule with the wrong target.
func (a *adapter) ticked(raw json.RawMessage) (string, error) {
	d, err := readDetail(raw)
	if err != nil {
		return "", err
	}
	name := cmp.Or(d.Function, a.function)
	if name == "" {
		return "", fmt.Errorf(`the scheduled event names no function and FUNCTION is unset; send "detail":{"function":"relay"}`)
	}
	f, err := functions.Named(name)
	switch {
	case err != nil:
		return "", err
	case a.local[name] == nil:
		return "", fmt.Errorf("the scheduled event is for %s, and this is %s", name, a.function)
	case f.Schedule == 0:
		return "", fmt.Errorf("function %s has no ticks", name)
	}
	return name, nil
}
