//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
	msjetstream "github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/test/kit"
)

const (
	// away is how long what failed stays away, which is longer than something else may take to
	// take over: postgresWithin where Postgres' primary is gone, storeWithin where another
	// store's is. Notifications may take notifiedWithin in any case: NATS' servers elect a
	// stream's leader 4 to 9 s after they lost one, and a function may go to a server that has
	// none before it finds one that has.
	away           = 30 * time.Second
	postgresWithin = 15 * time.Second
	storeWithin    = 5 * time.Second
	// joinWithin is for joins, which need no store but the queues' Redis, where a whole machine
	// is gone: its addresses may be silent.
	joinWithin     = 8 * time.Second
	notifiedWithin = 28 * time.Second
	// behindFor is how long a replica of a stream may be behind until something is done.
	behindFor = 20 * time.Second
	// replacedWithin bounds how long it takes to learn who has a role: what asks NATS or Patroni
	// may ask those first that are cut off.
	replacedWithin = 10 * time.Second
	// wholeWithin bounds how long it may take until everything has its replicas again.
	wholeWithin = 2 * time.Minute
	calm        = 3 * time.Second
)

// kinds are what clients ask for, beside which they are notified.
var kinds = []string{"grant", "transfer", "join", "session"}

const notification = "notification"

// role is what one machine has, until it fails.
type role struct {
	holder func() (*machine, error)
	// replaced reports whether another machine has it instead.
	replaced func(m *machine) bool
}

// failure is one that has something else take over.
type failure struct {
	name string
	role role // of the machine that fails
	// begin makes it happen and returns what ends it.
	begin func(m *machine) (end func() error, err error)
	keeps bool // its role
	whole bool // the whole machine fails
	// loses says that Redis may forget what it answered last.
	loses bool
	// within is how long it may take until clients are answered.
	within time.Duration
}

// limit is how long clients may wait for an answer of a kind.
func (f failure) limit(kind string) time.Duration {
	switch {
	case kind != "join":
		return f.within
	case f.whole:
		return joinWithin
	}
	return storeWithin
}

// fail makes it happen, for as long as everything else may need.
func (f failure) fail() error {
	m, err := f.role.holder()
	if err != nil {
		return err
	}
	end, err := f.begin(m)
	if err != nil {
		return err
	}
	kit.Pause(away)
	for deadline := time.Now().Add(replacedWithin); !f.keeps && !f.role.replaced(m); kit.Pause(time.Second) {
		if time.Now().After(deadline) {
			err = fmt.Errorf("no other machine has what %s had", m.name)
			break
		}
	}
	return errors.Join(err, end())
}

// TestFailover has the primary of each store fail, FAILOVER_ROUNDS times in each way, one
// failure after another, of those whose names match CHAOS_FAULTS, and fails if a promise
// was broken.
func TestFailover(t *testing.T) {
	rounds, err := strconv.Atoi(setting("FAILOVER_ROUNDS", "2"))
	kit.Must(t, err)
	names, err := regexp.Compile(setting("CHAOS_FAULTS", ""))
	kit.Must(t, err)
	w := newReplicated(t, 1)
	if !slices.ContainsFunc(w.failures(), func(f failure) bool { return names.MatchString(f.name) }) {
		t.Fatalf("no failure is called %q", names)
	}
	w.costs()
	w.survives(func() {
		for range rounds {
			for _, f := range w.failures() {
				if !names.MatchString(f.name) {
					continue
				}
				w.await("everything is replicated again", wholeWithin)
				kit.Pause(calm)
				say("%s: begins", f.name)
				h := happened{name: f.name, began: time.Now()}
				over := func() {}
				if f.loses {
					over = w.forget()
				}
				if err := f.fail(); err != nil {
					over()
					t.Errorf("%s: %v", f.name, err)
					return
				}
				w.await(f.name+": everything is replicated again", wholeWithin)
				h.ended = time.Now()
				if over(); f.loses {
					if err := w.forgive(); err != nil {
						t.Errorf("%s: %v", f.name, err)
					}
				}
				w.note(h)
				say("%s: over", f.name)
			}
		}
	})
	w.told()
	for _, f := range w.failures() {
		for _, p := range w.gateways {
			for _, kind := range kinds {
				limit := f.limit(kind)
				if pause := w.worst(f.name, kind+p.name); pause > limit {
					t.Errorf("%s: process %s answered no %s for %s, want %s at most", f.name, p.name, kind, pause, limit)
				}
			}
		}
		if pause := w.worst(f.name, notification); pause > notifiedWithin {
			t.Errorf("%s: nobody was notified for %s, want %s at most", f.name, pause, notifiedWithin)
		}
	}
	fmt.Fprintf(os.Stderr, "%s\n", w.table())
	if t.Failed() && len(w.broken) == 0 { // otherwise they are kept
		w.keepLogs()
	}
}

// costs says how long writes one after another take, while nothing fails, with the replicas
// that they wait for and without them, by turns. The machines have their disks in memory and
// one switch, so this is without the time of a network and of a disk.
func (w *replicated) costs() {
	const turns, each = 6, 200
	took := map[string][]time.Duration{}
	times := func(what string, write func()) {
		for range each {
			began := time.Now()
			write()
			took[what] = append(took[what], time.Since(began))
		}
	}
	events := func(copies int) error {
		return w.withBroker(func(_ context.Context, conn *natsgo.Conn) error {
			ctx := w.t.Context()
			js, err := jetstream.New(conn)
			if err != nil {
				return err
			}
			const name = "costs"
			if _, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Replicas: copies}); err != nil {
				return err
			}
			times(fmt.Sprint("an event's acknowledgement, copies: ", copies), func() {
				_, failed := js.Publish(ctx, name, make([]byte, 500))
				err = errors.Join(err, failed)
			})
			return errors.Join(err, js.DeleteStream(ctx, name))
		})
	}
	alone := *w.world // whose clients have a journal of their own
	alone.journal = newJournal()
	writer := alone.client(400)
	token := w.people.Token(w.t, nil)
	grants := func(commit string) error {
		_, err := w.admin.Exec(w.t.Context(), "ALTER SYSTEM SET synchronous_commit = "+commit)
		if err == nil {
			_, err = w.admin.Exec(w.t.Context(), "SELECT pg_reload_conf()")
		}
		if err != nil {
			return err
		}
		times("a grant's answer, synchronous_commit: "+commit, func() { writer.grantOnce(w.t.Context(), token) })
		return nil
	}
	for range turns {
		for _, copies := range []int{1, 3} {
			kit.Must(w.t, events(copies))
		}
		for _, commit := range []string{"local", "on"} {
			kit.Must(w.t, grants(commit))
		}
	}
	_, err := w.admin.Exec(w.t.Context(), "ALTER SYSTEM RESET synchronous_commit")
	kit.Must(w.t, err)
	for _, what := range slices.Sorted(maps.Keys(took)) {
		slices.Sort(took[what])
		say("%s: median %.2f ms", what, took[what][turns*each/2].Seconds()*1e3)
	}
}

func (w *replicated) failures() []failure {
	primary := role{w.postgresPrimary, func(m *machine) bool { now, _ := w.primary(); return now != nil && now != m }}
	leader := role{w.streamLeader, func(m *machine) bool { now, err := w.streamLeader(); return err == nil && now != m }}
	queue := role{w.queuePrimary, func(m *machine) bool {
		return w.takesWrites(w.machines[(slices.Index(w.machines, m)+1)%len(w.machines)].at(replicaPort))
	}}
	sessions := role{w.sessionPrimary, func(m *machine) bool {
		return w.takesWrites(w.machines[1-slices.Index(w.machines, m)].at(sessionPort))
	}}

	byItself := func() error { return nil }
	killed := func(services map[*machine]*service) func(m *machine) (end func() error, err error) {
		return func(m *machine) (func() error, error) { return services[m].start, services[m].kill() }
	}
	// Cut off from the other machines, and not from clients. Each may have Postgres' primary.
	cutOff := func(m *machine) (end func() error, err error) { return m.rejoin, m.isolate() }
	return []failure{
		{name: "Postgres' primary killed, Patroni restarts it", within: postgresWithin, role: primary, keeps: true, begin: func(m *machine) (func() error, error) {
			return byItself, killProgram("postgres", m.dir+"/postgres/data")
		}},
		{name: "Postgres' primary and its Patroni killed", within: postgresWithin, role: primary, begin: killed(w.postgres)},
		{name: "switchover of Postgres", within: postgresWithin, role: primary, begin: func(m *machine) (func() error, error) {
			response, err := http.Post("http://"+m.at(patroniPort)+"/switchover", "application/json", strings.NewReader(`{"leader":"`+m.name+`"}`))
			if err == nil {
				err = response.Body.Close()
			}
			if err == nil && response.StatusCode != http.StatusOK {
				err = errors.New(response.Status)
			}
			return byItself, err
		}},
		{name: "stream's leader killed", within: storeWithin, role: leader, begin: killed(w.nats)},
		{name: "primary of the queues' Redis killed", within: storeWithin, role: queue, loses: true, begin: killed(w.queues)},
		{name: "primary of the sessions' Redis killed", within: storeWithin, role: sessions, begin: killed(w.sessions)},
		{name: "machine with Postgres' primary killed", within: postgresWithin, whole: true, role: primary, loses: true, begin: func(m *machine) (func() error, error) { return m.start, m.kill() }},
		{name: "machine with Postgres' primary unplugged", within: postgresWithin, whole: true, role: primary, loses: true, begin: func(m *machine) (func() error, error) { return m.plug, m.unplug() }},
		{name: "machine with Postgres' primary cut off", within: postgresWithin, whole: true, role: primary, loses: true, begin: cutOff},
		{name: "machine with the stream's leader cut off", within: postgresWithin, whole: true, role: leader, loses: true, begin: cutOff},
		{name: "machine with the primary of the queues' Redis cut off", within: postgresWithin, whole: true, role: queue, loses: true, begin: cutOff},
		{name: "machine with the primary of the sessions' Redis cut off", within: postgresWithin, whole: true, role: sessions, loses: true, begin: cutOff},
	}
}

// takesWrites reports whether the Redis at an address is a primary.
func (w *replicated) takesWrites(address string) bool {
	info, err := w.nodes[address].Info(w.t.Context(), "replication").Result()
	return err == nil && strings.Contains(info, "role:master")
}

// postgresPrimary is the machine whose Postgres takes writes.
func (w *replicated) postgresPrimary() (*machine, error) {
	m, _ := w.primary()
	if m == nil {
		return nil, errors.New("Postgres has no primary")
	}
	return m, nil
}

// streamLeader is the machine whose NATS leads the stream of entitlements.
func (w *replicated) streamLeader() (*machine, error) {
	streams, err := w.streams()
	for _, info := range streams {
		if info.Config.Name == msjetstream.StreamName(event.EntitlementSubject) {
			for _, m := range w.machines {
				if strings.HasSuffix(info.Cluster.Leader, m.address) {
					return m, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("no leader: %w", err)
}

// queuePrimary is the machine whose Redis has the queue of rank.
func (w *replicated) queuePrimary() (*machine, error) {
	slot, err := w.nodes[w.machines[0].at(queuePort)].ClusterKeySlot(w.t.Context(), "mm:{rank}").Result()
	if err != nil {
		return nil, err
	}
	return w.machines[(int(slot)*len(w.machines)+len(w.machines)-1)/slots], nil
}

// told notes when notifications were accepted, which needs NATS.
func (w *replicated) told() {
	rows, err := w.admin.Query(w.t.Context(), `SELECT created_at FROM notification.notifications ORDER BY created_at`)
	kit.Must(w.t, err)
	w.answers[notification], err = pgx.CollectRows(rows, pgx.RowTo[time.Time])
	kit.Must(w.t, err)
}

// table says how long nothing of a kind was answered by each process, in the worst of the
// rounds of each failure that happened.
func (w *replicated) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Longest time without an answer of process one / of process two during each failure, s:\n\n| failure | %s | notification |\n|---|---|---|---|---|---|\n", strings.Join(kinds, " | "))
	for _, f := range w.failures() {
		if !slices.ContainsFunc(w.faults, func(h happened) bool { return h.name == f.name }) {
			continue
		}
		fmt.Fprintf(&b, "| %s |", f.name)
		for _, kind := range kinds {
			fmt.Fprintf(&b, " %.1f / %.1f |", w.worst(f.name, kind+w.gateways[0].name).Seconds(), w.worst(f.name, kind+w.gateways[1].name).Seconds())
		}
		fmt.Fprintf(&b, " %.1f |\n", w.worst(f.name, notification).Seconds())
	}
	gone := 0
	for _, t := range w.tickets {
		if t.status == "GONE" {
			gone++
		}
	}
	fmt.Fprintf(&b, "\nRedis forgot %d of %d tickets. %d standbys of Postgres were made anew, and %d streams got another leader because a replica stayed behind.\n", gone, len(w.tickets), w.remade, w.ledAnew)
	return b.String()
}

// worst returns the longest time in which nothing of a kind was answered in any round of a
// failure.
func (j *journal) worst(failure, kind string) (longest time.Duration) {
	for _, h := range j.faults {
		if h.name == failure {
			longest = max(longest, j.pauseWithin(kind, h))
		}
	}
	return longest
}

// pauseWithin returns the longest time in which nothing of a kind was answered while
// something failed.
func (j *journal) pauseWithin(kind string, h happened) (longest time.Duration) {
	last := h.began
	for _, at := range j.answers[kind] {
		if at.After(h.began) && last.Before(h.ended) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	if last.Before(h.ended) {
		longest = max(longest, h.ended.Sub(last))
	}
	return longest
}
