package functions

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/miniserversystem/miniserver/pkg/fn"
)

// Markdown renders the registry as docs/functions.md.
func Markdown() []byte {
	var out bytes.Buffer
	out.WriteString(`# Functions

Every function, from the registry in functions/functions.go; this page is
generated from it.

| function | what it does | takes | every | stores | timeout |
|---|---|---|---|---|---|
`)
	for _, f := range All {
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s |\n", f.Name, f.Summary, takes(f), every(f), stores(f), f.Timeout)
	}
	out.WriteString(`
## Public routes

| route | function | role |
|---|---|---|
`)
	for _, f := range All {
		for _, r := range f.Routes {
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", r.Pattern(), f.Name, roles(r))
		}
	}
	fmt.Fprintf(&out, "| `%s` | by the event's type | %s |\n", fn.EventsRoute.Pattern(), roles(fn.EventsRoute))
	return out.Bytes()
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
