package lease_test

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/test/kit"
)

// hostile makes the planner run a subquery again for every outer row, as it may do at any
// time, depending on its statistics.
var hostile = map[string]string{
	"enable_hashjoin": "off", "enable_mergejoin": "off", "enable_hashagg": "off",
	"enable_sort": "off", "enable_material": "off", "enable_bitmapscan": "off",
}

func hostilePool(t *testing.T) *pgxpool.Pool {
	return connect(t, func(c *pgxpool.Config) { maps.Copy(c.ConnConfig.RuntimeParams, hostile) })
}

func TestClaimNeverExceedsItsLimit(t *testing.T) {
	t.Parallel()
	f := setupOn(t, hostilePool(t), batch(1))
	f.insert(30)
	for range 10 {
		f.claim(f.worker("w"), 1)
	}
	f.policy.Batch = 7
	claim := f.claim(f.worker("w"), 7)
	if !claim.Full() {
		t.Error("a batch of 7 of 7 is not full")
	}
	f.policy.Batch = 50
	if rest := f.claim(f.worker("w"), 13); rest.Full() {
		t.Error("a batch of 13 of 50 is full")
	}
}

// Without MATERIALIZED, which the claim has in its CTE, IN (SELECT … LIMIT 1) claims many.
func TestClaimNaive(t *testing.T) {
	t.Parallel()
	f := setupOn(t, hostilePool(t))
	f.insert(30)
	claimed := query[int](f, `WITH claimed AS (
		UPDATE `+tableName+` SET status = 'IN_FLIGHT', claim_token = gen_random_uuid(), lease_until = now() + interval '30 s'
		WHERE event_id IN (SELECT event_id FROM `+tableName+`
			WHERE finished_at IS NULL AND next_retry_at <= now() AND (status = 'PENDING' OR lease_until <= now())
			ORDER BY next_retry_at LIMIT 1 FOR UPDATE SKIP LOCKED)
		RETURNING 1) SELECT count(*) FROM claimed`)
	if claimed <= 1 {
		t.Fatalf("the naive claim took %d rows, so this test shows nothing", claimed)
	}
	t.Logf("the naive claim took %d rows for LIMIT 1", claimed)
}

// A row in backoff, or leased, is not due.
func TestClaimTakesOnlyWhatIsDue(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.insert(4)
	f.exec(`UPDATE `+tableName+` SET next_retry_at = now() + interval '1 h' WHERE event_id = $1`, ids[0])
	f.claim(f.worker("a"), 3)
	f.claim(f.worker("b"), 0)
	f.expire(ids[1])
	// Its worker died with three rows, so that counts as no attempt of this one.
	again := f.claim(f.worker("b"), 1)
	if again.Rows[0].ID != ids[1] || again.Rows[0].Attempt != 1 || again.Rows[0].Row != "u/"+ids[1].String() {
		t.Fatalf("claimed %+v, want %s at attempt 1", again.Rows[0], ids[1])
	}
	if r := f.row(ids[1]); r.LockedBy == nil || *r.LockedBy != "b" {
		t.Fatalf("the row is %+v, want it locked by b", r)
	}
}

// A claim skips locked rows and does not wait for them.
func TestClaimSkipsLockedRows(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.insert(5)
	tx, err := f.pool.Begin(f.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(f.ctx)
	if _, err := tx.Exec(f.ctx, `SELECT FROM `+tableName+` WHERE event_id = $1 FOR UPDATE`, ids[2]); err != nil {
		t.Fatal(err)
	}
	// A claim that waits for the lock would wait until this test ends.
	ctx, cancel := context.WithTimeout(f.ctx, 5*time.Second)
	defer cancel()
	f.ctx = ctx
	f.claim(f.worker("w"), 4)
}

// Many workers drain 2,000 rows: every row is finished exactly once.
func TestManyWorkersFinishEveryRowOnce(t *testing.T) {
	t.Parallel()
	const rows, workers = 2000, 12
	f := setup(t, batch(37))
	f.insert(rows)
	var mutex sync.Mutex
	finished := map[uuid.UUID]int{}
	var group sync.WaitGroup
	for n := range workers {
		group.Go(func() {
			w := f.worker(fmt.Sprint("w", n))
			for step := 0; ; step++ {
				claim, err := w.Claim(f.ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if len(claim.Rows) == 0 {
					return
				}
				if len(claim.Rows) > 37 {
					t.Errorf("claimed %d rows, want 37 at most", len(claim.Rows))
				}
				ids := idsOf(claim)
				lost, err := claim.Finish(f.ctx, ids)
				if err != nil || lost != 0 {
					t.Errorf("lost %d rows, want none; %v", lost, err)
				}
				mutex.Lock()
				for _, id := range ids {
					finished[id]++
				}
				mutex.Unlock()
			}
		})
	}
	group.Wait()
	for id, n := range finished {
		if n != 1 {
			t.Errorf("%s was finished %d times, want 1", id, n)
		}
	}
	if len(finished) != rows || f.count("PUBLISHED") != rows {
		t.Errorf("%d rows were finished and %d are PUBLISHED, want %d", len(finished), f.count("PUBLISHED"), rows)
	}
	if n := query[int](f, `SELECT max(attempt_count) FROM `+tableName); n != 1 {
		t.Errorf("a row was claimed %d times, want 1", n)
	}
}

// One statement finishes, retries or gives up a whole batch.
func TestOneStatementABatch(t *testing.T) {
	t.Parallel()
	trace := &tracer{}
	f := setupOn(t, connect(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = trace }))
	for name, act := range zombies {
		f.insert(100)
		claim := f.claim(f.worker("w"), 100)
		trace.take()
		if lost, err := act(f, claim, idsOf(claim)); lost != 0 || err != nil {
			t.Fatalf("%s: lost %d; %v", name, lost, err)
		}
		if calls := trace.take(); len(calls) != 1 {
			t.Errorf("%s of 100 rows took %d statements, want 1", name, len(calls))
		}
		f.exec(`TRUNCATE ` + tableName)
	}
}

// The worker's clock decides nothing in the database: no statement has a time as argument.
func TestNoClockOfOursInSQL(t *testing.T) {
	t.Parallel()
	trace := &tracer{}
	f := setupOn(t, connect(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = trace }))
	for name, act := range zombies {
		f.insert(3)
		trace.take()
		claim := f.claim(f.worker("w"), 3)
		if _, err := act(f, claim, idsOf(claim)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, call := range trace.take() {
			for i, arg := range call.Args {
				if typ := reflect.TypeOf(arg); strings.Contains(typ.String(), "time.Time") || strings.Contains(typ.String(), "Timestamp") {
					t.Errorf("%s: $%d is a %s in %s", name, i+1, typ, call.SQL)
				}
			}
		}
		f.exec(`TRUNCATE ` + tableName)
	}
	absolute := regexp.MustCompile(`\b20\d\d-`)
	for _, sql := range f.worker("w").Statements() {
		if absolute.MatchString(sql) {
			t.Errorf("a time is written into %s", sql)
		}
	}
}

// A worker's deadline, on its own monotonic clock, is well before its lease ends.
func TestDeadlineIsBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.policy.Lease = 10 * time.Second
	f.insert(1)
	claim := f.claim(f.worker("w"), 1)
	mine := time.Until(claim.Deadline)
	left := time.Duration(query[float64](f, `SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM `+tableName) * float64(time.Second))
	if mine <= 0 || left-mine < f.policy.Lease/4 {
		t.Errorf("the deadline is in %s, the lease ends in %s; want a quarter of a lease between", mine, left)
	}
	if left > f.policy.Lease {
		t.Errorf("leased for %s, want %s at most", left, f.policy.Lease)
	}
	if claim.Deadline.Round(0) == claim.Deadline {
		t.Error("the deadline has no monotonic part")
	}
}

// Claims work in every mode of the protocol; behind a transaction pooler statements run in
// other modes than the default.
func TestEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			pool, err := postgres.Open(kit.Database(t), 4, mode, nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			f := setupOn(t, pool)
			// The test's own statements use the default protocol.
			f.pool = kit.Connect(t, pool.Config().ConnConfig.ConnString())
			for name, act := range zombies {
				f.insert(3)
				own := *f
				own.pool = pool
				claim, err := own.worker("w").Claim(f.ctx)
				if err != nil || len(claim.Rows) != 3 {
					t.Fatalf("claimed %d rows, want 3: %v", len(claim.Rows), err)
				}
				if lost, err := act(f, claim, idsOf(claim)); lost != 0 || err != nil {
					t.Errorf("%s: lost %d; %v", name, lost, err)
				}
				f.exec(`TRUNCATE ` + tableName)
			}
		})
	}
}
