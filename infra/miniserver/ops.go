package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const opsUsage = `miniserver ops flow                     what waits where
miniserver ops failed QUEUE             FAILED rows of entitlement-outbox, transfer-outbox or notifications
miniserver ops letters QUEUE            unreadable messages in notification-letters or settlement-letters
miniserver ops requeue QUEUE            make FAILED rows PENDING
miniserver ops republish QUEUE          publish PUBLISHED events of an outbox again; with -id
miniserver ops replay QUEUE             hand unreadable messages to their consumer again
miniserver ops discard QUEUE            delete unreadable messages
miniserver ops sign-out USER            end the sessions of a user
miniserver ops export USER              all that is kept about a person, as JSON; with -reason
miniserver ops erase USER               delete a user's identities and personal data
miniserver ops acts                     what operators did
miniserver ops act ID                   one act; -follow shows its progress
miniserver ops stop ID, resume ID       stop an act, and go on with it
miniserver ops user USER                all about one person
miniserver ops money                    compare balances with the ledger
miniserver ops settings                 schedule and settings in force

Rows are chosen with -id, -type, -owner, -error, -from and -before (RFC 3339). What changes
something is a dry run; -yes does it, with -reason, and at most -per-second rows a second.
Options come before QUEUE, USER or ID. -json prints the API's answers as they are.

It calls GATEWAY_URL with OPS_TOKEN, an access token, or with the token that OIDC_ISSUER
gives to OPS_CLIENT_ID and OPS_CLIENT_SECRET.
`

// options of all commands of ops.
type options struct {
	ids                       list
	kind, owner, reason, text string
	from, before              string
	perSecond                 int
	yes, follow, json         bool
}

type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

// ops shows operators what is stuck, and mends it, through the API that the console has.
func ops(ctx context.Context, arguments []string, out io.Writer) error {
	if len(arguments) == 0 {
		_, err := io.WriteString(out, opsUsage)
		return err
	}
	command := arguments[0]
	var o options
	flags := flag.NewFlagSet("ops "+command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Var(&o.ids, "id", "")
	for name, into := range map[string]*string{"type": &o.kind, "owner": &o.owner, "error": &o.text, "from": &o.from, "before": &o.before, "reason": &o.reason} {
		flags.StringVar(into, name, "", "")
	}
	flags.IntVar(&o.perSecond, "per-second", 100, "")
	for name, into := range map[string]*bool{"yes": &o.yes, "follow": &o.follow, "json": &o.json} {
		flags.BoolVar(into, name, false, "")
	}
	if err := flags.Parse(arguments[1:]); err != nil {
		return fmt.Errorf("ops %s: %w; `miniserver ops` lists the commands", command, err)
	}
	do, wants := opsCommands[command], ""
	if do.run == nil {
		return fmt.Errorf("there is no command ops %s; `miniserver ops` lists them", command)
	}
	if wants = do.argument; flags.NArg() > 1 || (wants != "") != (flags.NArg() == 1) {
		return fmt.Errorf("write ops %s %s, with options before it", command, cmp.Or(wants, "without more"))
	}
	caller, err := newOperator(ctx, out, o.json)
	if err != nil {
		return err
	}
	return do.run(ctx, caller, o, flags.Arg(0))
}

var opsCommands = map[string]struct {
	argument string
	run      func(context.Context, *operator, options, string) error
}{
	"flow":      {"", flow},
	"failed":    {"QUEUE", listRows("failed")},
	"letters":   {"QUEUE", listRows("letters")},
	"requeue":   {"QUEUE", mend("requeue")},
	"republish": {"QUEUE", mend("republish")},
	"replay":    {"QUEUE", mend("replay")},
	"discard":   {"QUEUE", mend("discard")},
	"sign-out":  {"USER", mend("sign-out")},
	"erase":     {"USER", mend("erase")},
	"export":    {"USER", export},
	"acts":      {"", listActs},
	"act":       {"ID", readAct},
	"stop":      {"ID", turn("stop")},
	"resume":    {"ID", turn("resume")},
	"user":      {"USER", show("/v1/operations/users/{}")},
	"money":     {"", show("/v1/reconciliation")},
	"settings":  {"", show("/v1/operations/settings")},
}

// show prints an answer as it is.
func show(path string) func(context.Context, *operator, options, string) error {
	return func(ctx context.Context, o *operator, _ options, argument string) error {
		text, err := o.call(ctx, http.MethodGet, strings.Replace(path, "{}", url.PathEscape(argument), 1), nil, nil)
		if err != nil {
			return err
		}
		return o.print(text)
	}
}

// flow prints what waits where.
func flow(ctx context.Context, o *operator, _ options, _ string) error {
	var now struct {
		Tables []struct {
			Queue string
			Rows  []struct {
				Status string
				Rows   int
				Oldest int64 `json:"oldest_ms"`
			}
		}
		Streams []struct {
			Subject, Consumer string
			Messages          int
		}
		Matchmaking []struct {
			Mode    string
			Waiting int
			Oldest  int64 `json:"oldest_ms"`
		}
		Transfers struct {
			InProgress int   `json:"in_progress"`
			Oldest     int64 `json:"oldest_ms"`
			Due        int   `json:"ledger_due"`
			DueFor     int64 `json:"ledger_due_ms"`
		}
		Letters []struct {
			Queue   string
			Letters int
		}
		Away []struct{ Part, Reason string }
	}
	text, err := o.call(ctx, http.MethodGet, "/v1/operations/flow", nil, &now)
	if err != nil {
		return err
	}
	var rows [][]string
	add := func(where, what string, n int, oldestMS int64) {
		rows = append(rows, []string{where, what, fmt.Sprint(n), (time.Duration(oldestMS) * time.Millisecond).String()})
	}
	for _, t := range now.Tables {
		for _, r := range t.Rows {
			add(t.Queue, r.Status, r.Rows, r.Oldest)
		}
	}
	for _, s := range now.Streams {
		add(s.Subject, "for "+s.Consumer, s.Messages, 0)
	}
	for _, q := range now.Matchmaking {
		add("queue "+q.Mode, "waiting", q.Waiting, q.Oldest)
	}
	add("transfers", "in progress", now.Transfers.InProgress, now.Transfers.Oldest)
	add("ledger", "due", now.Transfers.Due, now.Transfers.DueFor)
	for _, l := range now.Letters {
		add(l.Queue, "unread", l.Letters, 0)
	}
	for _, a := range now.Away {
		rows = append(rows, []string{a.Part, "away: " + a.Reason, "", ""})
	}
	return o.table(text, "WHERE\tWHAT\tCOUNT\tOLDEST", rows)
}

func (c options) query() string {
	values := url.Values{}
	for name, value := range map[string]string{
		"id": strings.Join(c.ids, ""), "event_type": c.kind, "owner": c.owner, "error_contains": c.text, "failed_from": c.from, "failed_before": c.before,
	} {
		if value != "" {
			values.Set(name, value)
		}
	}
	if len(values) == 0 {
		return ""
	}
	return "?" + values.Encode()
}

func listRows(what string) func(context.Context, *operator, options, string) error {
	return func(ctx context.Context, o *operator, c options, queue string) error {
		var answer struct {
			Failed, Letters []struct {
				ID, Owner, Error string
				EventType        string    `json:"event_type"`
				FailedAt         time.Time `json:"failed_at"`
				CreatedAt        time.Time `json:"created_at"`
			}
			Next string `json:"next_cursor"`
		}
		if len(c.ids) > 1 {
			return errors.New("list one -id at a time")
		}
		text, err := o.call(ctx, http.MethodGet, "/v1/operations/queues/"+url.PathEscape(queue)+"/"+what+c.query(), nil, &answer)
		if err != nil {
			return err
		}
		var rows [][]string
		for _, r := range append(answer.Failed, answer.Letters...) {
			at := r.FailedAt
			if at.IsZero() {
				at = r.CreatedAt
			}
			rows = append(rows, []string{line(r.ID), at.Format(time.RFC3339), line(r.EventType), line(r.Owner), line(r.Error)})
		}
		err = o.table(text, "ID\tSINCE\tTYPE\tOWNER\tERROR", rows)
		if answer.Next != "" && !o.json {
			fmt.Fprintln(o.out, "There are more; narrow them down with the options, or see them in the console.")
		}
		return err
	}
}

// act is one of the API's.
type act struct {
	ID        string    `json:"act_id"`
	Kind      string    `json:"kind"`
	Queue     string    `json:"queue"`
	Actor     string    `json:"actor"`
	Reason    string    `json:"reason"`
	Status    string    `json:"status"`
	AtMost    int64     `json:"at_most"`
	Done      int64     `json:"done"`
	Skipped   int64     `json:"skipped"`
	LastError string    `json:"last_error"`
	CreatedAt time.Time `json:"created_at"`
}

func (a act) String() string {
	text := fmt.Sprintf("%s %s: %d", a.ID, a.Status, a.Done)
	if a.AtMost < math.MaxInt32 { // an erasure has no bound
		text += fmt.Sprintf(" of %d", a.AtMost)
	}
	text += " done"
	if a.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", a.Skipped)
	}
	if a.LastError != "" {
		text += ": " + line(a.LastError)
	}
	return text
}

func listActs(ctx context.Context, o *operator, _ options, _ string) error {
	var answer struct{ Acts []act }
	text, err := o.call(ctx, http.MethodGet, "/v1/operations/acts", nil, &answer)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, a := range answer.Acts {
		rows = append(rows, []string{a.ID, a.CreatedAt.Format(time.RFC3339), line(a.Actor), a.Kind + " " + a.Queue, fmt.Sprint(a.Done), a.Status, line(a.Reason)})
	}
	return o.table(text, "ID\tWHEN\tWHO\tWHAT\tROWS\tSTATE\tWHY", rows)
}

const actPath = "/v1/operations/acts/"

func readAct(ctx context.Context, o *operator, c options, id string) error {
	if c.follow {
		return o.follow(ctx, id)
	}
	text, err := o.call(ctx, http.MethodGet, actPath+url.PathEscape(id), nil, nil)
	if err != nil {
		return err
	}
	return o.print(text)
}

func turn(how string) func(context.Context, *operator, options, string) error {
	return func(ctx context.Context, o *operator, _ options, id string) error {
		var turned act
		text, err := o.call(ctx, http.MethodPost, actPath+url.PathEscape(id)+"/"+how, nil, &turned)
		if err != nil {
			return err
		}
		if o.json {
			return o.print(text)
		}
		_, err = fmt.Fprintln(o.out, turned)
		return err
	}
}

// mend counts the rows that fit, and with -yes begins the act and follows it.
func mend(kind string) func(context.Context, *operator, options, string) error {
	return func(ctx context.Context, o *operator, c options, queue string) error {
		filter := map[string]any{}
		for name, value := range map[string]string{
			"event_type": c.kind, "owner": c.owner, "error_contains": c.text, "failed_from": c.from, "failed_before": c.before,
		} {
			if value != "" {
				filter[name] = value
			}
		}
		if len(c.ids) > 0 {
			filter["ids"] = []string(c.ids)
		}
		switch kind { // whose argument is a user
		case "sign-out":
			filter["owner"], queue = queue, "sessions"
		case "erase":
			filter["owner"], queue = queue, "accounts"
		}
		wish := map[string]any{"kind": kind, "queue": queue, "filter": filter}
		var counted struct {
			Fits int
			More bool
		}
		if _, err := o.call(ctx, http.MethodPost, actPath+"dry-run", wish, &counted); err != nil {
			return err
		}
		orMore := ""
		if counted.More {
			orMore = " or more"
		}
		fmt.Fprintf(o.out, "%d%s would be changed by %s in %s\n", counted.Fits, orMore, kind, queue)
		switch {
		case counted.Fits == 0:
			return nil
		case !c.yes:
			fmt.Fprintln(o.out, "This was a dry run: add -yes and -reason to do it.")
			return nil
		case c.reason == "":
			return errors.New("say why with -reason; it is kept with the act")
		}
		wish["reason"], wish["per_second"], wish["at_most"] = c.reason, c.perSecond, counted.Fits
		var begun act
		if _, err := o.call(ctx, http.MethodPost, strings.TrimSuffix(actPath, "/"), wish, &begun); err != nil {
			return err
		}
		return o.follow(ctx, begun.ID)
	}
}

// export prints the document of a person.
func export(ctx context.Context, o *operator, c options, user string) error {
	if c.reason == "" {
		return errors.New("say why with -reason; it is kept with the act")
	}
	text, err := o.call(ctx, http.MethodPost, "/v1/operations/users/"+url.PathEscape(user)+"/export", map[string]string{"reason": c.reason}, nil)
	if err != nil {
		return err
	}
	return o.print(text)
}

// follow prints the progress of an act until it ends.
func (o *operator) follow(ctx context.Context, id string) error {
	var last string
	for {
		var now act
		if _, err := o.call(ctx, http.MethodGet, actPath+url.PathEscape(id), nil, &now); err != nil {
			return fmt.Errorf("%w (the act goes on; ops act -follow %s shows it again)", err, id)
		}
		if text := now.String(); text != last {
			fmt.Fprintln(o.out, text)
			last = text
		}
		if now.Status != "RUNNING" {
			return nil
		}
		select {
		case <-ctx.Done():
			fmt.Fprintf(o.out, "It goes on without this command; ops stop %s stops it.\n", id)
			return nil
		case <-time.After(time.Second / 2):
		}
	}
}
