package operations_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

// blocks are the code blocks of a language in a page of docs/.
func blocks(t testing.TB, page, language string) (found []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	kit.Must(t, err)
	for _, block := range regexp.MustCompile("(?s)\n *```"+language+"\n(.*?)\n *```").FindAllStringSubmatch(string(text), -1) {
		found = append(found, block[1])
	}
	return found
}

// terminal runs miniserver ops as an operator.
type terminal struct {
	*desk
	program string
}

func (d *desk) terminal() *terminal {
	d.T.Helper()
	return &terminal{d, program.Build(d.T, "../..", "./infra/miniserver")}
}

// run runs a line, and returns what it printed and whether it succeeded.
func (r *terminal) run(token, line string) (printed string, ok bool) {
	r.T.Helper()
	ctx, cancel := context.WithTimeout(r.T.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", `miniserver() { "$PROGRAM" "$@"; }; `+line)
	command.Env = append(os.Environ(), "PROGRAM="+r.program, "GATEWAY_URL="+r.URL, "OPS_TOKEN="+token)
	out, err := command.CombinedOutput()
	return string(out), err == nil
}

// Every line with miniserver ops and every query of the runbook and of the service levels
// works as it is pasted.
func TestRunbookWorks(t *testing.T) {
	t.Parallel()
	d := setup(t)
	r := d.terminal()
	user := d.UserID(d.player)
	d.failed(3, user, "the endpoint answered 503")
	lines := 0
	for _, block := range append(blocks(t, "runbook.md", "sh"), blocks(t, "privacy.md", "sh")...) {
		for line := range strings.Lines(block) {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "miniserver ops") {
				continue
			}
			lines++
			line = strings.ReplaceAll(line, "u_01h455vb4pex5vsknk084sn02q", user)
			line, _, _ = strings.Cut(line, " > ")
			if strings.Contains(line, "erase -yes") {
				continue // its second step comes two minutes later; TestErase sees it
			}
			printed, ok := r.run(d.operator, line)
			if !ok && !strings.Contains(printed, "nothing_to_do") {
				t.Errorf("%s: %s", line, printed)
			}
		}
	}
	if lines < 10 {
		t.Errorf("the runbook has only %d lines with miniserver ops", lines)
	}
	if n := d.Count(`SELECT count(*) FROM notification.acts WHERE status = 'DONE' AND done = 3`); n != 1 {
		t.Errorf("%d acts requeued the 3 rows, want the runbook's one", n)
	}

	// What the pages about partitions begin with.
	d.exec(`DROP TABLE IF EXISTS entitlement.entitlement_audit_y2026m12`)
	d.exec(`ALTER TABLE entitlement.entitlement_audit_default ADD CONSTRAINT entitlement_audit_y2026m12 CHECK (true)`)
	values := strings.NewReplacer(":'since'", "'019b9c68-4a40-7c61-8b0e-2f1d7f3c9a10'::uuid", ":account", "1", `\gset`, "")
	queries := 0
	for _, page := range []string{"runbook.md", "slo.md"} {
		for _, block := range blocks(t, page, "sql") {
			queries++
			conn, err := d.Pool.Acquire(t.Context())
			kit.Must(t, err)
			if err := conn.Conn().PgConn().Exec(t.Context(), values.Replace(block)).Close(); err != nil {
				t.Errorf("%s: %v:\n%s", page, err, block)
			}
			conn.Release()
		}
	}
	if queries < 12 {
		t.Errorf("the pages have only %d queries", queries)
	}
}

// In a terminal: a dry run changes nothing, an act is followed to its end, what others
// wrote cannot steer the terminal, and a refusal says what to do.
func TestOps(t *testing.T) {
	t.Parallel()
	d := setup(t)
	r := d.terminal()
	d.failed(4, "u_1", "answered 503 \x1b[31m\nby somebody")
	for _, step := range []struct {
		token, line string
		ok          bool
		want        []string
	}{
		{d.viewer, "miniserver ops flow", true, []string{"notifications", "FAILED"}},
		{d.viewer, "miniserver ops failed notifications", true, []string{"u_1", "answered 503  [31m by somebody"}},
		{d.viewer, "miniserver ops requeue notifications", true, []string{"4 would be changed", "dry run"}},
		{d.viewer, "miniserver ops requeue -yes -reason x notifications", false, []string{"role_missing"}},
		{d.operator, "miniserver ops requeue -yes notifications", false, []string{"-reason"}},
		{d.operator, "miniserver ops requeue notifications -yes", false, []string{"options before it"}},
		{d.operator, "miniserver ops requeue -yes -reason 'INC 42' notifications", true, []string{"4 would be changed", "DONE: 4 of 4 done"}},
		{d.operator, "miniserver ops acts", true, []string{"the operator", "requeue notifications", "INC 42", "DONE"}},
		{d.operator, "miniserver ops -json acts", false, []string{"no command"}},
		{d.operator, "miniserver ops acts -json", true, []string{`"acts": [`}},
		{d.operator, "miniserver ops requeue notifications", true, []string{"0 would be changed"}},
		{d.operator, "miniserver ops letters notification-letters", true, []string{"ERROR"}},
		{d.operator, "miniserver ops failed nowhere", false, []string{"queue_not_found"}},
		{d.operator, "miniserver ops act act_x", false, []string{"act_not_found"}},
		{d.operator, "miniserver ops user u_1", true, []string{`"user_id": "u_1"`}},
		{d.operator, "miniserver ops money", true, []string{`"balanced": true`}},
		{d.operator, "miniserver ops settings", true, []string{"TICK_BUDGET"}},
		{d.player, "miniserver ops flow", false, []string{"route_not_found"}},
		{"", "miniserver ops flow", false, []string{"OPS_TOKEN"}},
		{"", "miniserver ops", true, []string{"miniserver ops requeue QUEUE"}},
		{"", "miniserver ops burn", false, []string{"no command ops burn"}},
	} {
		printed, ok := r.run(step.token, step.line)
		if ok != step.ok || strings.ContainsRune(printed, '\x1b') {
			t.Errorf("%s: succeeded %v, want %v: %s", step.line, ok, step.ok, printed)
		}
		for _, want := range step.want {
			if !strings.Contains(printed, want) {
				t.Errorf("%s does not print %q: %s", step.line, want, printed)
			}
		}
	}
	if n := d.withStatus("PENDING"); n != 4 {
		t.Errorf("%d rows are PENDING, want 4", n)
	}
}

// Without a token ops signs in by itself, with a client's credentials.
func TestOpsSignsIn(t *testing.T) {
	t.Parallel()
	d := setup(t)
	r := d.terminal()
	printed, ok := r.run("", "OIDC_ISSUER=http://127.0.0.1:1 OPS_CLIENT_ID=ops OPS_CLIENT_SECRET=x \"$PROGRAM\" ops flow")
	if ok || !strings.Contains(printed, "issuer") || strings.Count(printed, "\n") != 1 {
		t.Errorf("with an issuer that is away it prints %q, want one line about it", printed)
	}
}
