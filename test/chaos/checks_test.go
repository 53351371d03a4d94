//go:build chaos

package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/test/kit"
)

// repeated is how many answered writes are sent once more in the end.
const repeated = 1000

// unfinished counts what is still under way: each number must become 0.
const unfinished = `
SELECT 'events of entitlements that are not published', count(*) FROM entitlement.outbox_events WHERE finished_at IS NULL
UNION ALL SELECT 'events of transfers that are not published', count(*) FROM integration.outbox_events WHERE finished_at IS NULL
UNION ALL SELECT 'notifications that are not sent', count(*) FROM notification.notifications WHERE finished_at IS NULL
UNION ALL SELECT 'transfers in progress', count(*) FROM integration.idempotency_key WHERE status = 'IN_PROGRESS'
UNION ALL SELECT 'transfers without ledger entries', count(*) FROM core.ledger_due
UNION ALL SELECT 'events of entitlements without a notification', count(*)
	FROM entitlement.outbox_events e LEFT JOIN notification.notifications n USING (event_id) WHERE n.event_id IS NULL
UNION ALL SELECT 'completed transfers that are not settled', count(*)
	FROM integration.outbox_events e LEFT JOIN integration.processed_events p USING (event_id) WHERE e.event_type <> 'TransferSettled' AND p.event_id IS NULL
UNION ALL SELECT 'settled transfers that an owner was not notified of', count(*)
	FROM (SELECT FROM integration.outbox_events e LEFT JOIN notification.notifications n USING (event_id) WHERE e.event_type = 'TransferSettled'
		GROUP BY event_id, e.payload HAVING count(n.event_id) < CASE e.payload->>'kind' WHEN 'OPENING' THEN 1 ELSE 2 END) AS s`

// wrong selects what must not be there at all.
var wrong = `
SELECT what FROM chaos.broken
UNION ALL SELECT format('event %s has the time of a clock that is not Postgres', event_id) FROM entitlement.outbox_events WHERE ` + kit.OtherTime("event_id", "occurred_at", "finished_at") + `
UNION ALL SELECT format('event %s has the time of a clock that is not Postgres', event_id) FROM integration.outbox_events WHERE ` + kit.OtherTime("event_id", "occurred_at", "finished_at") + `
UNION ALL SELECT format('event %s of %s FAILED: %s', event_id, aggregate_key, last_error) FROM entitlement.outbox_events WHERE status = 'FAILED'
UNION ALL SELECT format('event %s of %s FAILED: %s', event_id, aggregate_key, last_error) FROM integration.outbox_events WHERE status = 'FAILED'
UNION ALL SELECT format('notification %s FAILED: %s', notification_id, last_error) FROM notification.notifications WHERE status = 'FAILED'
UNION ALL SELECT format('dead letter of %s: %s', coalesce(event_id, '?'), error) FROM notification.notification_dlq
UNION ALL SELECT format('dead letter of %s: %s', coalesce(event_id, '?'), error) FROM integration.settle_dlq
UNION ALL SELECT format('key %s changed %s entitlements', idem_key, count(*)) FROM entitlement.entitlement_audit GROUP BY caller, idem_key HAVING count(*) > 1
UNION ALL SELECT format('%s of %s is at version %s after %s changes', stock_keeping_unit, user_id, version, (
		SELECT count(*) FROM entitlement.entitlement_audit a WHERE (a.user_id, a.stock_keeping_unit) = (e.user_id, e.stock_keeping_unit)))
	FROM entitlement.entitlements e WHERE version <> (
		SELECT count(DISTINCT a.version) FROM entitlement.entitlement_audit a
		WHERE (a.user_id, a.stock_keeping_unit) = (e.user_id, e.stock_keeping_unit) AND a.version BETWEEN 1 AND e.version)
UNION ALL SELECT format('change %s of %s has no event', a.version, a.user_id)
	FROM entitlement.entitlement_audit a LEFT JOIN entitlement.outbox_events o USING (event_id) WHERE o.event_id IS NULL
UNION ALL SELECT format('event %s has no change', o.event_id)
	FROM entitlement.outbox_events o LEFT JOIN entitlement.entitlement_audit a USING (event_id) WHERE a.event_id IS NULL
UNION ALL SELECT format('account %s has %s, and its ledger says %s', account_id, balance, sum)
	FROM core.account LEFT JOIN (
		SELECT account_id, sum(CASE side WHEN 'CREDIT' THEN amount ELSE -amount END) FROM core.ledger GROUP BY 1) l USING (account_id)
	WHERE balance <> coalesce(sum, 0)
UNION ALL SELECT format('all accounts together have %s', sum(balance)) FROM core.account HAVING sum(balance) <> 0
UNION ALL SELECT format('key %s succeeded without a transfer', idempotency_key)
	FROM integration.idempotency_key k LEFT JOIN core.transfer t USING (transfer_id) WHERE k.status = 'SUCCEEDED' AND k.scope <> 'open-account' AND t.transfer_id IS NULL
UNION ALL SELECT format('transfer %s belongs to %s keys that succeeded', t.transfer_id, count(k.transfer_id))
	FROM core.transfer t LEFT JOIN integration.idempotency_key k ON k.transfer_id = t.transfer_id AND k.status = 'SUCCEEDED'
	WHERE t.kind <> 'OPENING' GROUP BY t.transfer_id HAVING count(k.transfer_id) <> 1
UNION ALL SELECT format('transfer %s has %s events of type %s', aggregate_key, count(*), event_type)
	FROM integration.outbox_events GROUP BY aggregate_key, event_type HAVING count(*) > 1
UNION ALL SELECT format('%s transfers have %s events of their completion', transfers, events)
	FROM (SELECT count(*) AS transfers FROM core.transfer) t, (SELECT count(*) AS events FROM integration.outbox_events WHERE event_type <> 'TransferSettled') e
	WHERE transfers <> events
UNION ALL SELECT format('event %s of %s is told %s times, to %s', event_id, e.payload->>'user_id', count(*), string_agg(n.user_id, ', '))
	FROM entitlement.outbox_events e JOIN notification.notifications n USING (event_id)
	GROUP BY event_id, e.payload->>'user_id' HAVING count(*) > 1 OR min(n.user_id) <> e.payload->>'user_id'
UNION ALL SELECT format('transfer %s is told %s times', payload->>'transfer_id', count(*))
	FROM notification.notifications WHERE event_type = 'TransferSettled' GROUP BY user_id, payload->>'transfer_id' HAVING count(*) > 1
UNION ALL SELECT format('match %s is told %s times to %s', payload->>'match_id', count(*), user_id)
	FROM notification.notifications WHERE event_type = 'MatchMade' GROUP BY user_id, payload->>'match_id' HAVING count(*) > 1`

// pending says what is still under way, "" if nothing is.
func (w *world) pending() string {
	rows, err := w.admin.Query(context.Background(), unfinished)
	if err != nil {
		return err.Error()
	}
	var list []string
	var what string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&what, &n}, func() error {
		if n > 0 {
			list = append(list, fmt.Sprint(n, " ", what))
		}
		return nil
	})
	if err != nil {
		return err.Error()
	}
	untold, err := w.untold()
	if err != nil {
		return err.Error()
	}
	for _, t := range untold {
		list = append(list, "match "+t.match+" is not told to "+t.player)
	}
	return strings.Join(list, ", ")
}

// untold returns the tickets whose players must be notified of a match, and were not.
func (w *world) untold() (list []*ticket, err error) {
	rows, err := w.admin.Query(context.Background(), `SELECT user_id || ' ' || (payload->>'match_id') FROM notification.notifications WHERE event_type = 'MatchMade'`)
	if err != nil {
		return nil, err
	}
	told, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	slices.Sort(told)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, t := range w.tickets {
		if _, found := slices.BinarySearch(told, t.player+" "+t.match); !found && w.owed(t) {
			list = append(list, t)
		}
	}
	return list, nil
}

// owed reports whether the player of a ticket must be notified of a match: Redis did not
// forget it before.
func (w *world) owed(t *ticket) bool { return t.match != "" && !t.forgiven && !w.forgot(t) }

// remembered counts the tickets whose players must be notified.
func (w *world) remembered() (n int) {
	for _, t := range w.tickets {
		if w.owed(t) {
			n++
		}
	}
	return n
}

// forgive notes the matches so far that nobody is notified of yet: Redis forgot those whose
// event had not arrived. It waits for Postgres.
func (w *world) forgive() error {
	before := time.Now()
	for {
		untold, err := w.untold()
		if err != nil && time.Since(before) < quietWithin {
			kit.Pause(100 * time.Millisecond)
			continue
		}
		w.mutex.Lock()
		defer w.mutex.Unlock()
		for _, t := range untold {
			t.forgiven = t.joined.Before(before)
		}
		return err
	}
}

// check compares what the clients were answered with what is there.
func (w *world) check() {
	rows, err := w.admin.Query(context.Background(), wrong)
	kit.Must(w.t, err)
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	kit.Must(w.t, err)
	for _, what := range found {
		w.breach("%s", what)
	}
	w.checkGrants()
	w.checkTransfers()
	w.checkMatches()
	w.checkLogs()
	w.checkReplays()
}

// checkGrants looks for the change of each write that was answered.
func (w *world) checkGrants() {
	type change struct {
		User, Item, Status string
		Version            int64
	}
	rows, err := w.admin.Query(context.Background(), `SELECT idem_key, user_id, stock_keeping_unit, status, version FROM entitlement.entitlement_audit`)
	kit.Must(w.t, err)
	changes := map[string]change{}
	var key string
	var got change
	_, err = pgx.ForEachRow(rows, []any{&key, &got.User, &got.Item, &got.Status, &got.Version}, func() error { changes[key] = got; return nil })
	kit.Must(w.t, err)
	for _, sent := range w.writes {
		if sent.kind != "grant" || sent.status != http.StatusOK {
			continue
		}
		var answered struct {
			User    string `json:"user_id"`
			Item    string `json:"stock_keeping_unit"`
			Status  string `json:"status"`
			Version int64  `json:"version"`
		}
		kit.Must(w.t, json.Unmarshal([]byte(sent.answer), &answered))
		if want := (change{sent.user, sent.item, answered.Status, answered.Version}); changes[sent.key] != want {
			w.breach("key %s was answered %+v, and there is %+v", sent.key, want, changes[sent.key])
		}
	}
}

// checkTransfers looks for what each transfer asked for and was answered.
func (w *world) checkTransfers() {
	type ended struct {
		Status, Code string
		From, To     int64
		Amount       string
	}
	rows, err := w.admin.Query(context.Background(), `
		SELECT idempotency_key, coalesce(status, ''), coalesce(error_code, ''), coalesce(from_account_id, 0), coalesce(to_account_id, 0), coalesce(amount::text, '')
		FROM integration.idempotency_key LEFT JOIN core.transfer USING (transfer_id)`)
	kit.Must(w.t, err)
	keys := map[string]ended{}
	var key string
	var got ended
	_, err = pgx.ForEachRow(rows, []any{&key, &got.Status, &got.Code, &got.From, &got.To, &got.Amount}, func() error { keys[key] = got; return nil })
	kit.Must(w.t, err)
	for _, sent := range w.writes {
		if sent.kind != "transfer" || sent.status != http.StatusOK {
			continue
		}
		var answered struct{ Status, ErrorCode string }
		kit.Must(w.t, json.Unmarshal([]byte(sent.answer), &answered))
		want := ended{Status: answered.Status, Code: answered.ErrorCode}
		if want.Status == "SUCCEEDED" {
			want.From, want.To, want.Amount = sent.from, sent.to, sent.amount
		}
		if keys[sent.key] != want {
			w.breach("transfer %s was answered %+v, and there is %+v", sent.key, want, keys[sent.key])
		}
	}
}

// checkMatches compares what both players of each match saw, and looks for tickets that are
// in more than one.
func (w *world) checkMatches() {
	rows, err := w.admin.Query(context.Background(), `
		SELECT payload->>'ticket_id', count(*) FROM notification.notifications WHERE event_type = 'MatchMade' GROUP BY 1 HAVING count(*) > 1`)
	kit.Must(w.t, err)
	var ticketID string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&ticketID, &n}, func() error {
		// What a failover of Redis undid may happen once more.
		if !slices.ContainsFunc(w.tickets, func(t *ticket) bool { return t.id == ticketID && w.forgot(t) }) {
			w.breach("ticket %s is in %d matches", ticketID, n)
		}
		return nil
	})
	kit.Must(w.t, err)
	matches := map[string][]*ticket{}
	for _, t := range w.tickets {
		if t.match != "" {
			matches[t.match] = append(matches[t.match], t)
		}
	}
	for id, both := range matches {
		if len(both) > 2 {
			w.breach("%d tickets are in match %s", len(both), id)
		}
		for _, t := range both {
			for _, other := range both {
				if other != t && (t.peer != other.player || t.player == other.player) {
					w.breach("match %s of %s is with %s, and the other player is %s", id, t.player, t.peer, other.player)
				}
			}
		}
		if len(both) == 1 && !w.forgot(both[0]) && !w.peerForgot(both[0]) {
			w.breach("%s saw match %s, and %s did not", both[0].player, id, both[0].peer)
		}
	}
}

// peerForgot reports whether Redis may have forgotten the ticket of a ticket's peer before
// that one saw the match, or the key of a join of the peer's that a link held back: then
// it joins once more, and its player knows nothing of it.
func (w *world) peerForgot(t *ticket) bool {
	return slices.ContainsFunc(w.tickets, func(peer *ticket) bool {
		if peer.player != t.peer || !peer.joined.Before(t.ended) {
			return false
		}
		heldBack := peer.sentAgain && t.joined.Before(peer.ended.Add(silentFor+ticketLife)) && w.lost(peer.joined, t.ended)
		return heldBack || t.joined.Before(peer.ended) && (peer.status == "GONE" || w.forgot(peer))
	})
}

// checkLogs looks for each notification that is SENT in the logs of those that send: the
// log is the channel. It also looks for a process that broke off by itself.
func (w *world) checkLogs() {
	sent := map[string]bool{}
	for _, p := range w.all {
		for line := range strings.Lines(p.printed()) {
			if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
				w.breach("%s: %s", p.name, line)
			}
			var said struct {
				Message string `json:"msg"`
				ID      string `json:"notification_id"`
			}
			if json.Unmarshal([]byte(line), &said) == nil && said.Message == "notification" {
				sent[said.ID] = true
			}
		}
	}
	rows, err := w.admin.Query(context.Background(), `SELECT notification_id FROM notification.notifications WHERE status = 'SENT'`)
	kit.Must(w.t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	kit.Must(w.t, err)
	for _, u := range ids {
		if text := id.Text(id.Notification, u); !sent[text] {
			w.breach("notification %s is SENT, and nobody sent it", text)
		}
	}
}

// checkReplays sends answered writes once more.
func (w *world) checkReplays() {
	var answered []*write
	for _, sent := range w.writes {
		if sent.answer != "" {
			answered = append(answered, sent)
		}
	}
	rand.New(rand.NewPCG(w.seed, 1)).Shuffle(len(answered), func(i, j int) { answered[i], answered[j] = answered[j], answered[i] })
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nothing goes wrong any more
	c := w.client(1000)
	for _, sent := range answered[:min(repeated, len(answered))] {
		c.again(ctx, sent)
	}
}

// watchMoney reads all balances again and again, each time in one snapshot.
func (w *world) watchMoney() {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	var sum, least string
	err := w.admin.QueryRow(ctx, `SELECT sum(balance), coalesce(min(balance) FILTER (WHERE owner_user_id IS NOT NULL), 0) FROM core.account`).Scan(&sum, &least)
	if err == nil && (strings.Trim(sum, "0.") != "" || strings.HasPrefix(least, "-")) {
		w.breach("all accounts together have %s, the least one %s", sum, least)
	}
}

// longestPause returns the longest time in which nothing of a kind was answered.
func (j *journal) longestPause(kind string) (longest time.Duration) {
	times := j.answers[kind]
	for i := 1; i < len(times); i++ {
		longest = max(longest, times[i].Sub(times[i-1]))
	}
	return longest
}

// after returns how long it took until something of a kind was answered after at.
func (j *journal) after(kind string, at time.Time) (time.Duration, bool) {
	times := j.answers[kind]
	n, _ := slices.BinarySearchFunc(times, at, time.Time.Compare)
	if n == len(times) {
		return 0, false
	}
	return times[n].Sub(at), true
}

// summary is a table of all faults, with how long it took after each until a grant and a
// transfer were answered.
func (w *world) summary() string {
	var b strings.Builder
	byName := map[string][]happened{}
	for _, h := range w.faults {
		byName[h.name] = append(byName[h.name], h)
	}
	fmt.Fprintf(&b, "| fault | times | longest, s | next grant after it, s: median, worst | next transfer |\n|---|---:|---:|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		var longest time.Duration
		next := map[string][]time.Duration{}
		for _, h := range byName[name] {
			longest = max(longest, h.ended.Sub(h.began))
			for _, kind := range []string{"grant", "transfer"} {
				if d, ok := w.after(kind, h.ended); ok {
					next[kind] = append(next[kind], d)
				}
			}
		}
		fmt.Fprintf(&b, "| %s | %d | %.1f | %s | %s |\n", name, len(byName[name]), longest.Seconds(), medianAndWorst(next["grant"]), medianAndWorst(next["transfer"]))
	}
	return b.String()
}

func medianAndWorst(list []time.Duration) string {
	if len(list) == 0 {
		return "–"
	}
	slices.Sort(list)
	return fmt.Sprintf("%.2f, %.2f", list[len(list)/2].Seconds(), list[len(list)-1].Seconds())
}
