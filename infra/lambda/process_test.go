package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A function that cannot start prints one line that says why, exits with a status, and
// reports it to Lambda.
func TestInitError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, says, setting string }{
		{"unknown function", `there is no function "nope"`, "FUNCTION=nope"},
		{"store missing", "function relay needs DATABASE_URL", "FUNCTION=relay"},
		{"broken duration", "TICK_BUDGET is not a valid", "TICK_BUDGET=soon"},
		{"out of range", "LEASE_BATCH must be 1 to 500", "LEASE_BATCH=501"},
		{"wakes", "WAKES must be false", "WAKES=true"},
		{"schedule", "SCHEDULE must be off", "SCHEDULE=auto"},
		{"metrics", "METRICS_ADDRESS", "METRICS_ADDRESS=127.0.0.1:nope"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			environment := map[string]string{"SCHEDULE": "off", "WAKES": "false"}
			if c.name == "metrics" { // all is well but that
				maps.Copy(environment, map[string]string{
					"DATABASE_URL": "postgres://127.0.0.1:1/x", "NATS_URL": "nats://127.0.0.1:1", "REDIS_URL": "redis://127.0.0.1:1", "OIDC_ISSUER": "http://127.0.0.1:1",
				})
			}
			name, value, _ := strings.Cut(c.setting, "=")
			environment[name] = value
			p := startProcess(t, environment)
			var status *exec.ExitError
			if err := p.wantEnd(20 * time.Second); !errors.As(err, &status) || status.ExitCode() != 1 {
				t.Errorf("it ended with %v, want status 1", err)
			}
			line := strings.TrimSuffix(p.Printed(), "\n")
			if strings.Contains(line, "\n") || !strings.HasPrefix(line, "miniserver: ") || !strings.Contains(line, c.says) {
				t.Errorf("it printed %q, want one line with %q", line, c.says)
			}
			select {
			case reported := <-p.initError:
				var body struct{ ErrorMessage, ErrorType string }
				kit.Must(t, json.Unmarshal(reported.body, &body))
				if reported.kind != initErrorType || body.ErrorType != initErrorType || "miniserver: "+body.ErrorMessage != line {
					t.Errorf("Lambda got %s %s, want the printed error", reported.kind, reported.body)
				}
			default:
				t.Error("Lambda got no error")
			}
		})
	}
}

// An unknown event fails its invocation; the error lists what is accepted and shows no
// content, and the process keeps running.
func TestUnknownEvents(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.start("FUNCTION=relay")
	for event, says := range map[string]string{
		`{"Records":[{"eventSource":"aws:sqs","body":"secret"}]}`:  "it has Records",
		`{"httpMethod":"GET","path":"/secret","version":"1.0"}`:    "it has httpMethod, path, version",
		`{"detail-type":"EC2 Instance State-change Notification"}`: "it has detail-type",
		`["secret"]`: "is no JSON object",
		`"secret"`:   "is no JSON object",
		`{"detail-type":"Scheduled Event","detail":{"function":"notify"}}`:  "it is for notify, and this is relay",
		`{"detail-type":"Scheduled Event","detail":{"function":"grant"}}`:   "it is for grant, and this is relay",
		`{"detail-type":"Scheduled Event","detail":{"function":"nothing"}}`: `there is no function "nothing"`,
		`{"detail-type":"Scheduled Event","detail":[]}`:                     "cannot be read",
	} {
		answer, body := p.invoke([]byte(event), time.Minute)
		var said struct{ ErrorMessage, ErrorType string }
		kit.Must(t, json.Unmarshal(body, &said))
		says = strings.Replace(says, "it is for", "the scheduled event is for", 1)
		if !answer.failed || !strings.Contains(said.ErrorMessage, says) || strings.Contains(said.ErrorMessage, "secret") || !strings.HasPrefix(said.ErrorType, "Unknown") {
			t.Errorf("%s: failed=%v %s", event, answer.failed, body)
		}
	}
	all := s.start()
	for detail, says := range map[string]string{`{}`: "names no function", `{"function":"grant"}`: "grant has no ticks", `{"function":"gateway"}`: "gateway has no ticks"} {
		if answer, body := all.invoke(tickEvent(t, detail), time.Minute); !answer.failed || !strings.Contains(string(body), says) {
			t.Errorf("%s: failed=%v %s", detail, answer.failed, body)
		}
	}
	if answer, body := p.invoke(tickEvent(t, "{}"), time.Minute); answer.failed {
		t.Errorf("a tick afterwards: %s", body)
	}
}

// A tick that fails fails its invocation; its error does not show the cause, which is in
// the log.
func TestTickFails(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.start("FUNCTION=deliver", "DATABASE_URL=postgres://u:hidden@127.0.0.1:1/x")
	answer, body := p.invoke(tickEvent(t, "{}"), time.Minute)
	if !answer.failed || !bytes.Contains(body, []byte(`"errorType":"TickFailed"`)) || !bytes.Contains(body, []byte("tick of deliver: 503 ")) || bytes.Contains(body, []byte("127.0.0.1")) {
		t.Errorf("failed=%v %s", answer.failed, body)
	}
	if log := p.Printed(); !strings.Contains(log, `"msg":"tick failed"`) || strings.Contains(log, "hidden") {
		t.Errorf("log: %s", log)
	}
}

// A tick lingers to the end of its budget: what is committed meanwhile does not wait
// for the next minute.
func TestTickLingers(t *testing.T) {
	t.Parallel()
	s := setup(t)
	relay, gateway := s.start("FUNCTION=relay", "TICK_BUDGET=4s", "TICK_LINGER=4s"), s.start()
	began := time.Now()
	i := relay.begin(tickEvent(t, "{}"), time.Minute)
	if a := gateway.url(s.grant("k1", "u_1").url()); a.StatusCode != http.StatusOK {
		t.Fatalf("grant: %+v", a)
	}
	answer := relay.wait(i)
	var report lease.Report
	kit.Must(t, json.NewDecoder(answer.body).Decode(&report))
	if took := answer.at.Sub(began); answer.failed || report.Done != 1 || took < 3900*time.Millisecond || took > 6*time.Second {
		t.Errorf("failed=%v %+v after %s", answer.failed, report, took)
	}
}

// A tick that does not end in time fails with what to change, before Lambda would kill
// it.
func TestTickOutlivesTheInvocation(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.start("FUNCTION=relay", "TICK_BUDGET=20s", "TICK_LINGER=20s")
	i := p.begin(tickEvent(t, "{}"), 3*time.Second)
	answer := p.wait(i)
	var said struct{ ErrorMessage, ErrorType string }
	kit.Must(t, json.NewDecoder(answer.body).Decode(&said))
	if !answer.failed || said.ErrorType != "TickTimeout" || !strings.Contains(said.ErrorMessage, "TICK_BUDGET") || !answer.at.Before(i.deadline) {
		t.Errorf("failed=%v %+v, %s before the deadline", answer.failed, said, i.deadline.Sub(answer.at))
	}
}

// A request that cannot be answered in time is answered 504 before Lambda would kill the
// process, and the process keeps running.
func TestDeadline(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.start()
	if a := p.url(s.grant("k0", "u_0").url()); a.StatusCode != http.StatusOK {
		t.Fatalf("grant: %+v", a)
	}
	// A transaction that holds the row holds up the grant.
	tx, err := s.pool.Begin(t.Context())
	kit.Must(t, err)
	_, err = tx.Exec(t.Context(), `SELECT 1 FROM entitlement.entitlements WHERE user_id = 'u_0' FOR UPDATE`)
	kit.Must(t, err)
	for kind, event := range map[string][]byte{"url": s.grant("k1", "u_0").url(), "api": s.grant("k1", "u_0").api()} {
		i := p.begin(event, 3*time.Second)
		answer := p.wait(i)
		var a httpAnswer
		if kind == "url" {
			head, body := readPrelude(t, answer)
			var text bytes.Buffer
			_, err := text.ReadFrom(body)
			kit.Must(t, err)
			a, a.Body = head, text.String()
		} else {
			kit.Must(t, json.NewDecoder(answer.body).Decode(&a))
		}
		if a.StatusCode != http.StatusGatewayTimeout || a.json(t)["code"] != "timeout" || a.Headers["Content-Type"] != "application/problem+json" {
			t.Errorf("%s: answered %+v, want 504 timeout", kind, a)
		}
		if left := i.deadline.Sub(answer.at); left < answerMargin/4 {
			t.Errorf("%s: answered %s before the deadline", kind, left)
		}
	}
	kit.Must(t, tx.Rollback(t.Context()))
	if a := p.url(s.grant("k1", "u_0").url()); a.StatusCode != http.StatusOK {
		t.Errorf("the same afterwards: %+v", a)
	}
}

// What was logged is written when the answer is: nothing runs afterwards.
func TestLogIsWrittenBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	s := setup(t)
	p := s.start()
	for range 20 {
		before := strings.Count(p.Printed(), `"msg":"request"`)
		if a := p.api(request{method: http.MethodGet, path: "/openapi.json"}.api()); a.StatusCode != http.StatusOK {
			t.Fatalf("answered %+v, want 200", a)
		}
		if after := strings.Count(p.Printed(), `"msg":"request"`); after != before+1 {
			t.Fatalf("%d log lines after the answer, %d before it; want one more", after, before)
		}
	}
}
