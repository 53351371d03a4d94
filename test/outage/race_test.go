package outage_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// 64 different requests at once with one key: only one of them is executed; it gets its
// replay, the others a conflict.
func TestOneKeyManyBodiesAtOnce(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	const clients = 64
	for _, one := range []bool{true, false} {
		key, answers := fmt.Sprint("same", one), make([]system.Answer, clients)
		body := func(i int) string {
			if one { // all change one entitlement
				return system.ChangeBody("u_1", "item1", "purchase", fmt.Sprint("p_", i))
			}
			return system.ChangeBody(fmt.Sprint("u_", i), "item2", "purchase", "p_1")
		}
		before := s.Count(`SELECT count(*) FROM entitlement.outbox_events`)
		system.AtOnce(clients, func(i int) { answers[i] = s.Post(system.GrantsPath, key, body(i)) })
		winner := -1
		for i, a := range answers {
			switch {
			case a.Status != http.StatusOK:
				system.WantProblem(t, a, http.StatusConflict, "idempotency_key_reused")
			case winner >= 0:
				t.Errorf("%d and %d were both executed", winner, i)
			default:
				winner = i
			}
		}
		if winner < 0 {
			t.Fatal("no request was executed")
		}
		if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events`) - before; n != 1 {
			t.Errorf("%d effects, want 1", n)
		}
		system.WantReplay(t, answers[winner], s.Post(system.GrantsPath, key, body(winner)))
	}
}

// Duplicates of one conditional request at once: the first moves the version on, and the
// others are its retries, not stale requests.
func TestOneKeyWithIfMatchAtOnce(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	const rounds, clients = 60, 8
	system.WantStatus(t, s.Grant("first", "u_1", "item1"), http.StatusOK)
	for round := range rounds {
		answers := make([]system.Answer, clients)
		match := fmt.Sprintf(`If-Match: "%d"`, round+1)
		system.AtOnce(clients, func(i int) { answers[i] = s.Grant(fmt.Sprint("k", round), "u_1", "item1", match) })
		for _, a := range answers {
			if a.Status != http.StatusOK || string(a.Body) != string(answers[0].Body) {
				t.Fatalf("round %d: a retry is answered %d %s, want the replay", round, a.Status, a.Body)
			}
		}
	}
	if v := s.Count(`SELECT version FROM entitlement.entitlements`); v != rounds+1 {
		t.Errorf("version %d, want %d", v, rounds+1)
	}
}

// Conditional requests with different keys compete: one of them wins.
func TestIfMatchAtOnce(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	system.WantStatus(t, s.Grant("first", "u_1", "item1"), http.StatusOK)
	const clients = 32
	statuses := make([]int, clients)
	system.AtOnce(clients, func(i int) { statuses[i] = s.Revoke(fmt.Sprint("k", i), "u_1", "item1", `If-Match: "1"`).Status })
	won := 0
	for _, status := range statuses {
		if status == http.StatusOK {
			won++
		} else if status != http.StatusPreconditionFailed {
			t.Errorf("answered %d, want 200 or 412", status)
		}
	}
	if won != 1 {
		t.Errorf("%d requests won, want 1", won)
	}
}

// An expired key that many requests use at once has one effect again.
func TestExpiredKeyAtOnce(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	for round := 1; round <= 5; round++ {
		answers := make([]system.Answer, 32)
		system.AtOnce(len(answers), func(i int) { answers[i] = s.Grant("k1", "u_1", "item1") })
		for _, a := range answers {
			if a.Status != http.StatusOK || string(a.Body) != string(answers[0].Body) {
				t.Fatalf("round %d: answered %d %s, want 200 and one answer for all", round, a.Status, a.Body)
			}
		}
		if v := s.Count(`SELECT version FROM entitlement.entitlements`); v != round {
			t.Fatalf("after round %d the version is %d", round, v)
		}
		_, err := s.Pool.Exec(context.Background(), `UPDATE entitlement.idempotency_keys SET expires_at = now() - interval '1 second'`)
		kit.Must(t, err)
	}
}

// Grants and revokes of one item at once take every version once; audit, events and
// answers agree on each.
func TestVersionsHaveNoGap(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	const writes = 200
	versions := make([]int, writes)
	system.AtOnce(writes, func(i int) {
		write := s.Grant
		if i%2 == 0 {
			write = s.Revoke
		}
		a := write(fmt.Sprint("k", i), "u_1", "item1")
		if a.Status != http.StatusOK {
			t.Errorf("write %d: answered %d %s, want 200", i, a.Status, a.Body)
			return
		}
		versions[i] = int(a.JSON(t)["version"].(float64))
	})
	seen := map[int]int{}
	for _, v := range versions {
		seen[v]++
	}
	for v := 1; v <= writes; v++ {
		if seen[v] != 1 {
			t.Errorf("version %d was answered %d times, want once", v, seen[v])
		}
	}
	for what, sql := range map[string]string{
		"audit":  `SELECT count(DISTINCT version) FROM entitlement.entitlement_audit WHERE version BETWEEN 1 AND $1`,
		"events": `SELECT count(DISTINCT payload->>'version') FROM entitlement.outbox_events WHERE (payload->>'version')::int BETWEEN 1 AND $1`,
	} {
		if n := s.Count(sql, writes); n != writes {
			t.Errorf("%s has another number of versions than of writes: %d", what, n)
		}
	}
	if n := s.Count(`SELECT count(*) FROM entitlement.entitlements e JOIN entitlement.entitlement_audit a USING (user_id, stock_keeping_unit, version)
		JOIN entitlement.outbox_events o ON o.event_id = a.event_id
		WHERE a.status = e.status AND o.event_type = CASE e.status WHEN 'ACTIVE' THEN 'EntitlementGranted' ELSE 'EntitlementRevoked' END`); n != 1 {
		t.Error("state, audit and event of the last version differ")
	}
}

// The connection breaks between the commit and the answer: the retry gets the answer.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	body := system.ChangeBody("u_1", "item1", "purchase", "p_1")
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	kit.Must(t, err)
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nIdempotency-Key: k1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		system.GrantsPath, s.Writer, len(body), body)
	kit.Must(t, err)
	kit.Eventually(t, "the grant is committed", func() bool {
		return s.Count(`SELECT count(*) FROM entitlement.entitlements`) == 1
	})
	kit.Must(t, conn.Close())
	a := s.Post(system.GrantsPath, "k1", body)
	if a.Status != http.StatusOK || a.Header.Get("Idempotent-Replayed") != "true" || a.Header.Get("ETag") != `"1"` {
		t.Fatalf("the retry is answered %d %v %s, want the replay of version 1", a.Status, a.Header, a.Body)
	}
	if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events`); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

// Clients hang up at any moment and retry: each key has one effect.
func TestClientsHangUp(t *testing.T) {
	t.Parallel()
	s := system.Start(t, "WAKES=false")
	const keys = 100
	system.AtOnce(keys, func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), rand.N(20*time.Millisecond))
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+system.GrantsPath, strings.NewReader(system.ChangeBody("u_1", "item1", "purchase", fmt.Sprint("p_k", i))))
		if err != nil {
			t.Error(err)
			return
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", fmt.Sprint("k", i))
		request.Header.Set("Authorization", "Bearer "+s.Writer)
		if response, err := http.DefaultClient.Do(request); err == nil {
			response.Body.Close()
		}
		if a := s.Grant(fmt.Sprint("k", i), "u_1", "item1"); a.Status != http.StatusOK {
			t.Errorf("the retry is answered %d %s, want 200", a.Status, a.Body)
		}
	})
	if v := s.Count(`SELECT version FROM entitlement.entitlements`); v != keys {
		t.Errorf("version %d after %d keys", v, keys)
	}
	for _, table := range []string{"outbox_events", "entitlement_audit", "idempotency_keys"} {
		if n := s.Count(`SELECT count(*) FROM entitlement.` + table); n != keys {
			t.Errorf("%s has %d rows, want %d", table, n, keys)
		}
	}
}
