package lease_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/lease"
)

// zombies holds all ways to change claimed rows; each returns how many rows were lost.
var zombies = map[string]func(*fixture, *lease.Claim[string], []uuid.UUID) (int, error){
	"finish": func(f *fixture, c *lease.Claim[string], ids []uuid.UUID) (int, error) { return c.Finish(f.ctx, ids) },
	"retry": func(f *fixture, c *lease.Claim[string], ids []uuid.UUID) (int, error) {
		dead, lost, err := c.Retry(f.ctx, failures(ids))
		if dead != 0 {
			return lost, fmt.Errorf("%d dead", dead)
		}
		return lost, err
	},
	"return": func(f *fixture, c *lease.Claim[string], ids []uuid.UUID) (int, error) {
		return c.Return(f.ctx, failures(ids))
	},
	"give up": func(f *fixture, c *lease.Claim[string], ids []uuid.UUID) (int, error) {
		return c.GiveUp(f.ctx, failures(ids))
	},
}

// A worker was paused for longer than its lease, and its rows were claimed again by
// another worker, or by itself. Its old claim changes nothing, and reports them as lost.
func TestZombieChangesNothing(t *testing.T) {
	t.Parallel()
	for name, act := range zombies {
		for _, most := range []int{10, 1} { // at 1 the zombie's was the last attempt
			t.Run(fmt.Sprintf("%s/max attempts %d", name, most), func(t *testing.T) {
				t.Parallel()
				f := setup(t, attempts(most))
				for _, successor := range []string{"other", "same"} {
					for _, progress := range []string{"holds", "finished", "failed", "put back"} {
						t.Run(successor+" worker "+progress, func(t *testing.T) {
							zombieChangesNothing(t, f, act, successor, progress)
						})
					}
				}
			})
		}
	}
}

func zombieChangesNothing(t *testing.T, f *fixture, act func(*fixture, *lease.Claim[string], []uuid.UUID) (int, error), successor, progress string) {
	f.exec(`TRUNCATE ` + tableName)
	ids := f.insert(3)
	paused := f.worker("same")
	zombie := f.claim(paused, 3)
	f.expire()
	worker := paused
	if successor == "other" {
		worker = f.worker("other")
	}
	for range ids { // rows whose lease ended together are claimed in smaller parts
		holder := f.claim(worker, 1)
		var err error
		switch mine := idsOf(holder); progress {
		case "finished":
			_, err = holder.Finish(f.ctx, mine)
		case "failed":
			_, err = holder.GiveUp(f.ctx, failures(mine))
		case "put back":
			_, err = holder.Return(f.ctx, failures(mine))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	before := []string{f.whole(ids[0]), f.whole(ids[1]), f.whole(ids[2])}
	deadline := zombie.Deadline

	lost, err := act(f, zombie, ids)
	if err != nil || lost != 3 {
		t.Errorf("lost %d, want 3; %v", lost, err)
	}
	for i, id := range ids {
		if after := f.whole(id); after != before[i] {
			t.Errorf("row changed\nfrom %s\nto   %s", before[i], after)
		}
	}
	if zombie.Deadline != deadline {
		t.Errorf("a claim that lost its lease got another deadline")
	}
}

// Without the claim token, with event_id and locked_by as the only condition, a zombie of
// the same worker makes a published row PENDING again.
func TestZombieNaive(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`CREATE TABLE naive (event_id uuid PRIMARY KEY, status text DEFAULT 'PENDING', attempt_count int DEFAULT 0,
		next_retry_at timestamptz DEFAULT now(), locked_by text, lease_until timestamptz)`)
	f.exec(`INSERT INTO naive VALUES (gen_random_uuid())`)
	claim := func() string {
		return query[string](f, `WITH c AS (SELECT event_id FROM naive
				WHERE status = 'PENDING' AND next_retry_at <= now() OR status = 'IN_FLIGHT' AND lease_until <= now()
				LIMIT 1 FOR UPDATE SKIP LOCKED)
			UPDATE naive e SET status = 'IN_FLIGHT', locked_by = 'same', lease_until = now() + interval '30 s'
			FROM c WHERE e.event_id = c.event_id RETURNING e.event_id::text`)
	}
	id := claim()
	f.exec(`UPDATE naive SET lease_until = now() - interval '1 s'`)
	if claim() != id {
		t.Fatal("the row was not claimed again")
	}
	f.exec(`UPDATE naive SET status = 'PUBLISHED', lease_until = NULL WHERE event_id = $1 AND locked_by = 'same'`, id)
	// The zombie wakes up, with an error.
	f.exec(`UPDATE naive SET attempt_count = attempt_count + 1, status = 'PENDING', lease_until = NULL
		WHERE event_id = $1 AND locked_by = 'same'`, id)
	if status := query[string](f, `SELECT status FROM naive`); status != "PENDING" {
		t.Fatalf("the naive condition held, so this test shows nothing: the row is %s", status)
	}
}

// A worker may finish rows after its lease ended if nobody claimed them meanwhile.
func TestFinishAfterTheLeaseWithoutSuccessor(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.insert(1)
	claim := f.claim(f.worker("w"), 1)
	f.expire()
	if lost, err := claim.Finish(f.ctx, ids); lost != 0 || err != nil {
		t.Fatal(lost, err)
	}
	if r := f.row(ids[0]); r.Status != "PUBLISHED" || r.Held || !r.Finished {
		t.Fatalf("the row is %+v, want PUBLISHED", r)
	}
}

// If a part of a batch is lost, the rest is finished, and the lost part stays with its new
// holder.
func TestFinishWithPartOfTheBatchLost(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ids := f.insert(10)
	zombie := f.claim(f.worker("a"), 10)
	f.expire(ids[:4]...)
	holder := f.claim(f.worker("b"), 4)
	lost, err := zombie.Finish(f.ctx, ids)
	if err != nil || lost != 4 {
		t.Fatalf("lost %d, want 4; %v", lost, err)
	}
	if done, held := f.count("PUBLISHED"), f.count("IN_FLIGHT"); done != 6 || held != 4 {
		t.Fatalf("%d rows are PUBLISHED and %d IN_FLIGHT, want 6 and 4", done, held)
	}
	if lost, err := holder.Finish(f.ctx, idsOf(holder)); lost != 0 || err != nil {
		t.Fatalf("the holder lost %d; %v", lost, err)
	}
}

// A claim changes only rows that it took, even if it is given the ids of others.
func TestClaimChangesOnlyItsOwnRows(t *testing.T) {
	t.Parallel()
	f := setup(t, batch(1))
	f.insert(2)
	first, second := f.claim(f.worker("a"), 1), f.claim(f.worker("b"), 1)
	before := f.whole(second.Rows[0].ID)
	for name, act := range zombies {
		if lost, err := act(f, first, idsOf(second)); lost != 1 || err != nil {
			t.Errorf("%s: lost %d, want 1; %v", name, lost, err)
		}
	}
	if after := f.whole(second.Rows[0].ID); after != before {
		t.Errorf("changed\nfrom %s\nto   %s", before, after)
	}
}
