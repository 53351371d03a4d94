package outage_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// backups are a base backup of a Postgres and the log that it has written since.
type backups struct {
	t             *testing.T
	server        *kit.Postgres
	data          string // the server's
	archive, base string
}

// backUp has a server archive its log, as the runbook says.
func backUp(t *testing.T) *backups {
	t.Helper()
	b := &backups{t: t, server: kit.OwnPostgres(t, true)}
	pool := kit.Connect(t, b.server.URL())
	kit.Must(t, pool.QueryRow(t.Context(), `SHOW data_directory`).Scan(&b.data))
	b.archive, b.base = filepath.Join(filepath.Dir(b.data), "archive"), filepath.Join(filepath.Dir(b.data), "base")
	kit.Must(t, os.Mkdir(b.archive, 0o700))
	b.own(b.archive)
	for _, sql := range []string{`ALTER SYSTEM SET archive_mode = on`, `ALTER SYSTEM SET archive_timeout = '1s'`, fmt.Sprintf(`ALTER SYSTEM SET archive_command = 'cp %%p %s/%%f'`, b.archive)} {
		_, err := pool.Exec(t.Context(), sql)
		kit.Must(t, err)
	}
	pool.Close()
	kit.Must(t, b.server.Stop())
	b.server.Start()
	kit.Must(t, kit.Migrate(t.Context(), b.server.URL()))
	return b
}

// take takes the base backup.
func (b *backups) take() {
	b.t.Helper()
	command := exec.CommandContext(b.t.Context(), filepath.Join(b.server.Programs, "pg_basebackup"), "-d", b.server.URL(), "-D", b.base, "-X", "none", "-c", "fast")
	if said, err := command.CombinedOutput(); err != nil {
		b.t.Fatalf("pg_basebackup: %v: %s", err, said)
	}
}

// lose kills the server and takes its disk away, as soon as its log so far is archived.
func (b *backups) lose() {
	b.t.Helper()
	pool := kit.Connect(b.t, b.server.URL())
	defer pool.Close()
	var last string
	kit.Must(b.t, pool.QueryRow(b.t.Context(), `SELECT pg_walfile_name(pg_logical_emit_message(false, 'the', 'end'))`).Scan(&last))
	kit.Eventually(b.t, "the log is archived", func() (archived bool) {
		kit.Must(b.t, pool.QueryRow(b.t.Context(), `SELECT coalesce(last_archived_wal ~ '^[0-9A-F]{24}$' AND last_archived_wal >= $1, false) FROM pg_stat_archiver`, last).Scan(&archived))
		return archived
	})
	kit.Must(b.t, b.server.Kill())
	kit.Must(b.t, os.Rename(b.data, b.base+".lost"))
}

// restore loses the server's data, and has what it was at a moment instead.
func (b *backups) restore(moment string) {
	b.t.Helper()
	settings, err := os.OpenFile(filepath.Join(b.base, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	kit.Must(b.t, err)
	// Nobody may read what is not restored yet.
	_, err = fmt.Fprintf(settings, "restore_command = 'cp %s/%%f %%p'\nrecovery_target_time = '%s'\nrecovery_target_action = 'promote'\nhot_standby = off\n", b.archive, moment)
	kit.Must(b.t, err)
	kit.Must(b.t, settings.Close())
	kit.Must(b.t, os.WriteFile(filepath.Join(b.base, "recovery.signal"), nil, 0o600))
	b.own(b.base)
	b.lose()
	kit.Must(b.t, os.Rename(b.base, b.data))
	b.server.Start()
}

// own gives all of a folder to the server's user.
func (b *backups) own(folder string) {
	b.t.Helper()
	data, err := os.Stat(b.data)
	kit.Must(b.t, err)
	owner := data.Sys().(*syscall.Stat_t)
	kit.Must(b.t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	}))
}

// receiver is an endpoint of webhooks, which deduplicates by their ids.
type receiver struct {
	*httptest.Server
	mutex sync.Mutex
	ids   map[string]map[string]int // how often each came, by event (or transfer) and recipient
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{ids: map[string]map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		var body struct {
			Data struct {
				EventID string `json:"event_id"`
				UserID  string `json:"user_id"`
				Payload struct {
					TransferID string `json:"transfer_id"`
				}
			}
		}
		if err := json.NewDecoder(request.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		r.mutex.Lock()
		defer r.mutex.Unlock()
		about := cmp.Or(body.Data.Payload.TransferID, body.Data.EventID) + " " + body.Data.UserID
		if r.ids[about] == nil {
			r.ids[about] = map[string]int{}
		}
		r.ids[about][request.Header.Get("webhook-id")]++
	}))
	t.Cleanup(r.Close)
	return r
}

// times returns how often an event came.
func (r *receiver) times(event, user string) (n int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, came := range r.ids[event+" "+user] {
		n += came
	}
	return n
}

// The database is lost, and restored by the runbook's steps to a second at which every
// stage of the way to a player had something. What the broker, Redis and receivers know of
// the time after it does no harm: what is restored is told, under the ids under which it may
// have been told before, what is lost is not told any more, money adds up, and requests that
// are sent again happen, once.
func TestRestoredToASecond(t *testing.T) {
	t.Parallel()
	b, told := backUp(t), receive(t)
	environment := []string{
		"WAKES=false", "RECONCILE_AFTER=1ms", "DATABASE_URL=" + b.server.URL(), "NOTIFICATION_CHANNEL=webhook",
		"WEBHOOK_URLS=" + told.URL, "WEBHOOK_SECRETS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "WEBHOOK_ALLOW_PRIVATE=true",
	}
	s, people := system.StartWithPeople(t, environment...)
	s.Pool = kit.Connect(t, b.server.URL())
	operator := people.Token(t, map[string]any{"sub": "treasurer", "realm_access": map[string]any{"roles": []string{"operator"}}})
	alice, bob := people.Player(t, "alice"), people.Player(t, "bob")
	from, to := s.Opened(operator, s.UserID(alice), "100"), s.Opened(operator, s.UserID(bob), "50")
	b.take()

	s.Grant("sent", "u_1", "item1")
	s.DeliverAll()
	s.Grant("accepted", "u_1", "item2")
	s.Tick("relay")
	s.Tick("notify")
	s.Grant("published", "u_1", "item3")
	s.Tick("relay")
	committed := s.Grant("committed", "u_1", "item4")
	moved := s.Pay(alice, s.TransferKey(alice), from, to, "10")
	key := s.TransferKey(alice)
	var moment string
	kit.Must(t, s.Pool.QueryRow(t.Context(), `SELECT clock_timestamp()::text`).Scan(&moment))

	s.Grant("late", "u_1", "item5")
	lost := s.Pay(alice, key, from, to, "20")
	system.WantStatus(t, lost, http.StatusOK)
	drain(s)
	s.Grant("waiting", "u_1", "item6")
	s.Tick("relay")
	for _, player := range []string{alice, bob} {
		s.Joined(player, "casual", "k", `{}`)
	}
	s.Tick("match")
	s.Tick("announce")
	events := map[string]string{} // by item
	rows, err := s.Pool.Query(t.Context(), `SELECT payload->>'stock_keeping_unit', event_id::text FROM entitlement.outbox_events`)
	kit.Must(t, err)
	for rows.Next() {
		var item, event string
		kit.Must(t, rows.Scan(&item, &event))
		events[item] = event
	}
	kit.Must(t, rows.Err())
	before := told.times(events["item5"], "u_1")

	b.restore(moment)
	s.Pool.Reset()
	emptyBroker(t, s)
	again := system.StartOn(t, kit.Listen(t), append(environment, "OIDC_ISSUER="+people.URL,
		"NATS_URL="+s.NATS.URLAs(functions.TogetherUser), "REDIS_URL="+s.Redis.URLAs(functions.TogetherUser))...)
	again.Writer, again.Pool, again.NATS = s.Writer, s.Pool, s.NATS
	drain(again)

	if n := again.Count(`SELECT count(*) FROM entitlement.entitlements WHERE status = 'ACTIVE' AND stock_keeping_unit IN ('item1', 'item2', 'item3', 'item4')`); n != 4 {
		t.Errorf("%d of 4 grants are restored", n)
	}
	if n := again.Count(`SELECT count(*) FROM entitlement.entitlements`); n != 4 {
		t.Errorf("%d entitlements, want those 4", n)
	}
	if n := again.Count(`SELECT count(*) FROM entitlement.outbox_events o WHERE 1 <> (SELECT count(*) FROM notification.notifications n WHERE n.event_id = o.event_id AND n.status = 'SENT')`); n != 0 {
		t.Errorf("%d events are not told by one notification", n)
	}
	for about, ids := range told.ids {
		if len(ids) != 1 {
			t.Errorf("%s was told under %d ids: %v", about, len(ids), ids)
		}
	}
	for item, want := range map[string]int{"item1": 1, "item2": 2, "item3": 2, "item4": 2, "item5": before, "item6": 0} {
		if n := told.times(events[item], "u_1"); n != want || before != 1 {
			t.Errorf("%s was told %d times, want %d", item, n, want)
		}
	}
	if n := told.times(moved.Text("transferId"), s.UserID(bob)); n != 2 {
		t.Errorf("bob was told %d times of the transfer, want 2", n)
	}
	if n := again.Count(`SELECT count(*) FROM notification.notifications WHERE event_type = 'MatchMade' AND status = 'SENT'`); n != 2 {
		t.Errorf("%d players are told of the match, want 2", n)
	}
	system.WantReplay(t, committed, again.Grant("committed", "u_1", "item4"))
	if a := again.Grant("late", "u_1", "item5"); a.Status != http.StatusOK || a.Header.Get("Idempotent-Replayed") != "" {
		t.Errorf("the grant that was lost, sent again, is answered %d %s", a.Status, a.Body)
	}
	repeated := again.Pay(alice, key, from, to, "20")
	system.WantStatus(t, repeated, http.StatusOK)
	if repeated.Text("transferId") == lost.Text("transferId") || moved.Status != http.StatusOK {
		t.Errorf("the transfer that was lost, sent again, is answered %s; it was %s", repeated.Body, lost.Body)
	}
	drain(again)
	checked := again.Call(http.MethodGet, "/v1/reconciliation", operator, "").JSON(t)
	if balance := again.Call(http.MethodGet, "/v1/accounts/"+from, alice, "").JSON(t)["balance"]; fmt.Sprint(balance) != "70" || checked["balanced"] != true || checked["transfersWithoutEntries"] != 0.0 {
		t.Errorf("alice has %v, want 70; %v", balance, checked)
	}
}

// emptyBroker deletes all streams.
func emptyBroker(t *testing.T, s *system.System) {
	t.Helper()
	js, closeIt := system.JetStream(t, s)
	defer closeIt()
	names := js.StreamNames(t.Context())
	deleted := 0
	for name := range names.Name() {
		kit.Must(t, js.DeleteStream(t.Context(), name))
		deleted++
	}
	if names.Err() != nil || deleted == 0 {
		t.Fatalf("%d streams deleted, %v", deleted, names.Err())
	}
}

// drain ticks everything until nothing is left: an event passes at most two outboxes.
func drain(s *system.System) {
	s.T.Helper()
	for range 3 {
		for _, function := range []string{"relay", "settle", "announce", "reconcile", "notify", "deliver", "ledger"} {
			s.Tick(function)
		}
	}
}
