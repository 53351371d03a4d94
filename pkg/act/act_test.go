package act_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// letters is work on a table of them: each batch burns some.
type letters struct {
	pool *pgxpool.Pool
	fail func(done int) error // after a batch that burned done, before its commit
}

func (l letters) Count(ctx context.Context, _ act.Filter) (n int, err error) {
	err = l.pool.QueryRow(ctx, `SELECT count(*) FROM letters`).Scan(&n)
	return n, err
}

func (l letters) Batch(ctx context.Context, tx pgx.Tx, a act.Act, limit int) (act.Progress, error) {
	tag, err := tx.Exec(ctx, `DELETE FROM letters WHERE id IN (SELECT id FROM letters ORDER BY id LIMIT $1)`, limit)
	if err != nil {
		return act.Progress{}, err
	}
	done := int(tag.RowsAffected())
	if err := l.fail(int(a.Done) + done); err != nil {
		return act.Progress{}, err
	}
	return act.Progress{Done: done, Position: fmt.Sprint(int(a.Done) + done), More: done == limit}, nil
}

func setup(t testing.TB, n int, fail func(done int) error) (*act.Desk, *pgxpool.Pool) {
	t.Helper()
	pool := kit.Pool(t)
	_, err := pool.Exec(t.Context(), `CREATE TABLE letters (id int PRIMARY KEY)`)
	kit.Must(t, err)
	_, err = pool.Exec(t.Context(), `INSERT INTO letters SELECT generate_series(1, $1)`, n)
	kit.Must(t, err)
	return act.NewDesk(pool, "notification.acts").Does("burn", "letters", letters{pool, fail}), pool
}

func order(atMost int64) act.Order {
	return act.Order{
		Act: act.Act{Kind: "burn", Queue: "letters", Actor: "olga", Reason: "INC-42", PerSecond: 1000, AtMost: atMost},
		Key: "k", Hash: make([]byte, 32),
	}
}

func left(t testing.TB, pool *pgxpool.Pool) (n int) {
	t.Helper()
	kit.Must(t, pool.QueryRow(t.Context(), `SELECT count(*) FROM letters`).Scan(&n))
	return n
}

// A batch that fails or dies before its commit has changed nothing and is not counted; the
// record says why, and the act goes on later.
func TestBatchThatDies(t *testing.T) {
	t.Parallel()
	broken := true
	desk, pool := setup(t, 1200, func(done int) error {
		if broken && done > 500 {
			return errors.New("the power went out")
		}
		return nil
	})
	begun, err := desk.Begin(t.Context(), order(1200))
	kit.Must(t, err)
	step := func() (act.Progress, error) { return desk.Step(t.Context(), func(act.Act, error) {}) }
	if p, err := step(); err != nil || p.Done != 500 || !p.More {
		t.Fatalf("the first batch is %+v, %v; want 500 done and more", p, err)
	}
	var got act.Act
	kit.Eventually(t, "the second batch fails", func() bool {
		_, err := step()
		kit.Must(t, err)
		got, err = desk.Get(t.Context(), begun.ID)
		kit.Must(t, err)
		return got.LastError != ""
	})
	if strings.Contains(got.LastError, "power") {
		t.Errorf("the record shows an internal error: %s", got.LastError)
	}
	if got.Done != 500 || left(t, pool) != 700 || got.LastError == "" || got.Status != act.Running {
		t.Errorf("after a batch that failed the act is %+v and %d rows are left, want 500 done, 700 left, RUNNING and a reason", got, left(t, pool))
	}
	broken = false
	_, err = pool.Exec(t.Context(), `UPDATE notification.acts SET next_at = now()`) // instead of a rest of 5 s
	kit.Must(t, err)
	kit.Eventually(t, "the act is done", func() bool {
		_, err := step()
		kit.Must(t, err)
		got, err = desk.Get(t.Context(), begun.ID)
		kit.Must(t, err)
		return got.Status == act.Done
	})
	if got.Done != 1200 || left(t, pool) != 0 || got.LastError != "" || got.FinishedAt == nil {
		t.Errorf("the act is %+v and %d rows are left, want 1200 done and none left", got, left(t, pool))
	}
}

// While a batch runs, no other worker takes the same act; when its worker is gone, one does.
func TestOneWorkerAtATime(t *testing.T) {
	t.Parallel()
	inside, leave := make(chan struct{}), make(chan struct{})
	first := true
	desk, pool := setup(t, 10, func(int) error {
		if first {
			first = false
			close(inside)
			<-leave
			return errors.New("killed")
		}
		return nil
	})
	_, err := desk.Begin(t.Context(), order(10))
	kit.Must(t, err)
	ended := make(chan error, 1)
	step := func(failed func(act.Act, error)) (act.Progress, error) { return desk.Step(t.Context(), failed) }
	go func() {
		var killed error
		_, _ = step(func(_ act.Act, err error) { killed = err })
		ended <- killed
	}()
	<-inside
	waited := func(_ act.Act, err error) { t.Errorf("a second worker did the batch, too: %v", err) }
	if p, err := step(waited); err != nil || p.Done != 0 || !p.More {
		t.Errorf("a second worker did %+v, %v; want nothing, and to come again", p, err)
	}
	close(leave)
	if err := <-ended; err == nil {
		t.Error("the first batch reports no error")
	}
	if n := left(t, pool); n != 10 {
		t.Errorf("%d rows are left, want all 10", n)
	}
	_, err = pool.Exec(t.Context(), `UPDATE notification.acts SET next_at = now()`)
	kit.Must(t, err)
	if p, err := step(func(act.Act, error) {}); err != nil || p.Done != 10 {
		t.Errorf("the next batch is %+v, %v; want 10 done", p, err)
	}
}

// An act whose batches fail again and again, or kill their process, is stopped, and says so;
// meanwhile another one goes on.
func TestActThatAlwaysFails(t *testing.T) {
	t.Parallel()
	tries := 0
	desk, pool := setup(t, 10, func(int) error { tries++; return errors.New("poison") })
	begun, err := desk.Begin(t.Context(), order(10))
	kit.Must(t, err)
	var got act.Act
	kit.Eventually(t, "the act is stopped", func() bool {
		_, err := pool.Exec(t.Context(), `UPDATE notification.acts SET next_at = now() WHERE status = 'RUNNING'`) // instead of a rest of 5 s
		kit.Must(t, err)
		_, err = desk.Step(t.Context(), func(act.Act, error) {})
		kit.Must(t, err)
		got, err = desk.Get(t.Context(), begun.ID)
		kit.Must(t, err)
		return got.Status == act.Stopped
	})
	if got.StoppedBy != "console" || got.LastError == "" || left(t, pool) != 10 || tries != 5 {
		t.Errorf("the act is %+v after %d tries and %d rows are left, want it stopped by the console after 5 with a reason, and 10 left", got, tries, left(t, pool))
	}
	resumed, err := desk.Resume(t.Context(), begun.ID)
	if err != nil || resumed.Status != act.Running {
		t.Errorf("resumed it is %+v, %v; want RUNNING", resumed, err)
	}
}

// An operator has letters burned, a few at a time.
func Example() {
	t := kit.ForExample()
	defer t.End()
	desk, pool := setup(t, 5, func(int) error { return nil })
	begun, err := desk.Begin(t.Context(), order(3))
	fmt.Println(begun.Status, begun.Done, err)
	progress, err := desk.Step(t.Context(), func(_ act.Act, err error) { fmt.Println("failed:", err) })
	fmt.Println(progress.Done, err)
	ended, err := desk.Get(t.Context(), begun.ID)
	fmt.Println(ended.Status, ended.Done, ended.Reason, err)
	fmt.Println(left(t, pool), "are left")
	// Output:
	// RUNNING 0 <nil>
	// 3 <nil>
	// DONE 3 INC-42 <nil>
	// 2 are left
}
