package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"strings"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// functionsPage renders the registry as docs/functions.md.
func functionsPage() ([]byte, error) {
	nothing, err := settings.LoadFrom(nil)
	if err != nil {
		return nil, err
	}
	// A process without settings reports what each function needs.
	unset := fn.NewRuntime(nothing, slog.New(slog.DiscardHandler), functions.All)
	defer unset.Close()
	var out bytes.Buffer
	out.WriteString(`# Functions

Every function, from the registry in functions/functions.go; this page is
generated from it.

| function | what it does | takes | every | stores | needs, alone | timeout |
|---|---|---|---|---|---|---|
`)
	for _, f := range functions.All {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s | %s |\n", f.Name, f.Summary, takes(f), every(f), stores(f), needs(unset, f), f.Timeout)
	}
	out.WriteString(`
## Public routes

| route | function | role |
|---|---|---|
`)
	for _, f := range functions.All {
		for _, r := range f.Routes {
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", r.Pattern(), f.Name, roles(r))
		}
	}
	fmt.Fprintf(&out, "| `%s` | by the event's type | %s |\n", fn.EventsRoute.Pattern(), roles(fn.EventsRoute))
	return out.Bytes(), nil
}

// namesOfSettings matches the names that Missing writes in capitals, inBrackets the text
// after them.
var (
	inBrackets      = regexp.MustCompile(` \([^)]*\)`)
	namesOfSettings = regexp.MustCompile(`\b[A-Z]+(_[A-Z]+)+\b`)
)

// needs returns the settings without which a process with this function alone does not
// start.
func needs(unset *fn.Runtime, f fn.Function) string {
	missing := unset.Missing(f)
	if missing == nil {
		return ""
	}
	_, list, _ := strings.Cut(missing.Error(), " needs ")
	return namesOfSettings.ReplaceAllString(inBrackets.ReplaceAllString(list, ""), "`$0`")
}

func takes(f fn.Function) string {
	var parts []string
	if f.Public || len(f.Routes) > 0 {
		parts = append(parts, "HTTP")
	}
	for _, event := range f.Events {
		parts = append(parts, "`"+event+"`")
	}
	if f.Schedule > 0 {
		parts = append(parts, "tick, wake")
	}
	return strings.Join(parts, ", ")
}

func every(f fn.Function) string {
	if f.Schedule == 0 {
		return ""
	}
	return f.Schedule.String()
}

func stores(f fn.Function) string {
	names := make([]string, len(f.Stores))
	for i, s := range f.Stores {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

func roles(r fn.Route) string {
	if len(r.Roles) == 0 {
		return "any caller; other users' resources answer 404"
	}
	return strings.Join(r.Roles, " or ")
}
