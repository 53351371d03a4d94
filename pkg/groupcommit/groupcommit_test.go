package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miniserversystem/miniserver/pkg/groupcommit"
)

// store commits words, once let allows it, and refuses those that are poison.
type store struct {
	groupcommit.Queue[string, string]
	let     chan struct{}
	mutex   sync.Mutex
	batches [][]string
}

var errPoison = errors.New("poison")

// setup returns a store whose keys are the words' letters.
func setup() *store {
	s := &store{let: make(chan struct{})}
	s.Keys = func(word string) []string { return strings.Split(word, "") }
	s.Commit = func(ctx context.Context, words []string) ([]string, error) {
		s.mutex.Lock()
		s.batches = append(s.batches, words)
		s.mutex.Unlock()
		select {
		case <-s.let:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if slices.Contains(words, "!") {
			return nil, errPoison
		}
		done := make([]string, len(words))
		for i, word := range words {
			done[i] = word + " done"
		}
		return done, nil
	}
	return s
}

// ask starts one write for each word, in this order, and returns when all wait.
func (s *store) ask(t *testing.T, group *sync.WaitGroup, words ...string) {
	for _, word := range words {
		group.Go(func() {
			done, err := s.Do(t.Context(), word)
			if word == "!" && !errors.Is(err, errPoison) || word != "!" && (err != nil || done != word+" done") {
				t.Errorf("%q ended with %q, %v", word, done, err)
			}
		})
		synctest.Wait()
	}
}

// ran returns the batches so far.
func (s *store) ran() [][]string {
	synctest.Wait()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.batches)
}

func want(t *testing.T, got [][]string, want ...[]string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the batches are %v, want %v", got, want)
	}
}

// words returns n words without a letter in common.
func words(first rune, n int) (all []string) {
	for i := range n {
		all = append(all, string(first+rune(i)))
	}
	return all
}

// Two writes run at once; what comes meanwhile is the next batch.
func TestNextBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		s.ask(t, group, "a", "b", "c", "d", "e")
		want(t, s.ran(), []string{"a"}, []string{"b"})
		s.let <- struct{}{}
		want(t, s.ran(), []string{"a"}, []string{"b"}, []string{"c", "d", "e"})
		close(s.let)
		group.Wait()
		// Nothing is left behind: the next one runs at once again.
		s.ask(t, group, "a")
		group.Wait()
		want(t, s.ran()[3:], []string{"a"})
	})
}

// A batch has 32 writes at most, in the order in which they came.
func TestBatchSize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		all := words('一', 2+40)
		s.ask(t, group, all...)
		s.let <- struct{}{}
		s.ran()
		s.let <- struct{}{}
		want(t, s.ran()[2:], all[2:34], all[34:])
		close(s.let)
		group.Wait()
	})
}

// Writes with a key in common run one after the other, in the order in which they came,
// while others pass them. One that waits for two keys is not overtaken for ever.
func TestKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		s.ask(t, group, "a", "ab", "b", "c")
		want(t, s.ran(), []string{"a"}, []string{"c"}) // "b" may not pass "ab"
		s.let <- struct{}{}
		s.let <- struct{}{}
		want(t, s.ran(), []string{"a"}, []string{"c"}, []string{"ab"})
		s.ask(t, group, "b", "d")
		want(t, s.ran()[3:], []string{"d"})
		s.let <- struct{}{}
		s.let <- struct{}{}
		s.let <- struct{}{}
		want(t, s.ran()[3:], []string{"d"}, []string{"b"}, []string{"b"})
		close(s.let)
		group.Wait()
	})
}

// A write that cannot succeed fails alone: the others of its batch run again, each alone and
// with its keys.
func TestPoison(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		s.ask(t, group, "a", "b", "c", "!", "d", "c")
		close(s.let)
		group.Wait()
		ran := s.ran()
		alone := ran[3:]
		slices.SortFunc(alone, slices.Compare)
		want(t, ran, []string{"a"}, []string{"b"}, []string{"c", "!", "d"}, []string{"!"}, []string{"c"}, []string{"c"}, []string{"d"})
	})
}

// What runs again comes before what came later.
func TestAgainFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		close(s.let)
		gates := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{}), "c": make(chan struct{})}
		commit := s.Commit
		s.Commit = func(ctx context.Context, words []string) ([]string, error) {
			if gate := gates[words[0]]; gate != nil {
				<-gate
			}
			return commit(ctx, words)
		}
		s.ask(t, group, "a", "b", "c", "!", "d")
		close(gates["a"])
		s.ran() // "c" has begun
		s.ask(t, group, "e")
		close(gates["c"])
		want(t, s.ran(), []string{"a"}, []string{"c", "!", "d"}, []string{"c"}, []string{"!"}, []string{"d"}, []string{"e"})
		close(gates["b"])
		group.Wait()
	})
}

// A caller that hangs up does not wait; its write does not happen unless it has begun, and
// the others' do.
func TestHangUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		s.ask(t, group, "a", "b")
		for _, word := range []string{"c", "d"} {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() {
				_, err := s.Do(ctx, word)
				ended <- err
			}()
			synctest.Wait()
			if word == "d" { // its batch begins before
				s.let <- struct{}{}
				want(t, s.ran()[2:], []string{"d"})
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("%q ended with %v, want that it was canceled", word, err)
			}
		}
		s.ask(t, group, "e")
		close(s.let)
		group.Wait()
		want(t, s.ran()[2:], []string{"d"}, []string{"e"})
	})
}

// A queue that is full refuses what it will not do.
func TestFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		s.ask(t, group, words('一', 2+1024)...)
		if _, err := s.Do(t.Context(), "z"); !errors.Is(err, groupcommit.ErrFull) {
			t.Errorf("one more ended with %v, want ErrFull", err)
		}
		close(s.let)
		group.Wait()
		for _, batch := range s.ran() {
			if slices.Contains(batch, "z") {
				t.Error("what was refused has happened")
			}
		}
	})
}

// Writes that share a name, here a letter behind a dash, may share a batch, but two batches
// may not.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		s.Keys = func(word string) []string { return []string{word[:1]} }
		s.Shared = func(word string) []string { return []string{word[1:]} }
		s.ask(t, group, "a-x", "b-x", "c-x", "a-y", "d-y", "b-y")
		want(t, s.ran(), []string{"a-x"}) // "a-y" has its key, and keeps the others of y waiting
		s.let <- struct{}{}
		want(t, s.ran(), []string{"a-x"}, []string{"b-x", "c-x", "a-y", "d-y"})
		close(s.let)
		group.Wait()
		want(t, s.ran()[2:], []string{"b-y"})
	})
}

// A write whose batch does not begin in time ends, and does not happen; one whose batch
// has begun is waited for.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		s.Patience = time.Second
		s.ask(t, group, "a", "b", "c")
		if _, err := s.Do(t.Context(), "ac"); !errors.Is(err, groupcommit.ErrFull) {
			t.Errorf("a write that waits for two keys ended with %v, want ErrFull", err)
		}
		<-time.After(2 * s.Patience)
		want(t, s.ran(), []string{"a"}, []string{"b"}, []string{"c"})
		close(s.let)
		group.Wait()
	})
}

// A write that ends because its batch did not begin in time holds up nobody any more.
func TestPatienceOfAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		s.Patience = time.Second
		s.ask(t, group, "a")
		group.Go(func() {
			if _, err := s.Do(t.Context(), "ab"); !errors.Is(err, groupcommit.ErrFull) {
				t.Errorf("a write that waits for a key ended with %v, want ErrFull", err)
			}
		})
		<-time.After(s.Patience / 2)
		s.ask(t, group, "b")
		want(t, s.ran(), []string{"a"})
		<-time.After(3 * s.Patience / 4)
		want(t, s.ran(), []string{"a"}, []string{"b"})
		close(s.let)
		group.Wait()
	})
}

// Batches that are slow, because they wait for a lock, keep only writes with their keys
// waiting.
func TestSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		s.ask(t, group, "a", "b", "c", "ad", "e")
		want(t, s.ran(), []string{"a"}, []string{"b"})
		<-time.After(300 * time.Millisecond)
		want(t, s.ran()[2:], []string{"c", "e"})
		s.ask(t, group, "f")
		want(t, s.ran()[3:], []string{"f"})
		close(s.let)
		group.Wait()
		want(t, s.ran()[4:], []string{"ad"})
		// Those that were slow are not counted twice.
		s.let = make(chan struct{})
		s.ask(t, group, "a", "b", "c")
		want(t, s.ran()[5:], []string{"a"}, []string{"b"})
		close(s.let)
		group.Wait()
	})
}

// Eight batches may be slow; then the next waits, however long they take.
func TestSlowBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		all := words('a', 12)
		for _, word := range all {
			s.ask(t, group, word)
			<-time.After(300 * time.Millisecond)
		}
		if n := len(s.ran()); n != 8+2 {
			t.Errorf("%d batches run at once, want 10", n)
		}
		close(s.let)
		group.Wait()
		want(t, s.ran()[10:], all[10:])
	})
}

// Callers that have gone keep no place in a full queue.
func TestFullOfTheGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, group := setup(), &sync.WaitGroup{}
		s.ask(t, group, "a", "b")
		ctx, hangUp := context.WithCancel(t.Context())
		for _, word := range words('一', 1024) {
			group.Go(func() { _, _ = s.Do(ctx, word) })
		}
		synctest.Wait()
		hangUp()
		s.ask(t, group, "c")
		close(s.let)
		group.Wait()
		want(t, s.ran()[2:], []string{"c"})
	})
}

// Clients that ask again as soon as they are answered keep nobody waiting longer than what
// was there before.
func TestFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const clients = 256
		ctx, cancel := context.WithCancel(t.Context())
		s, group := setup(), &sync.WaitGroup{}
		s.Keys = func(word string) []string { return []string{word} }
		for client := range clients {
			group.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					_, _ = s.Do(ctx, fmt.Sprint("flood", client, "-", n))
				}
			})
		}
		before := len(s.ran()) // all have asked: none can come after the late one
		s.ask(t, group, "late")
		for range clients/32 + 2 { // the two that run, and those that wait
			s.let <- struct{}{}
			synctest.Wait()
		}
		if ran := s.ran()[before:]; !slices.Contains(slices.Concat(ran...), "late") {
			t.Errorf("the write has not begun after %d batches", len(ran))
		}
		cancel()
		close(s.let)
		group.Wait()
	})
}

// Whatever comes in whatever order, each write happens once, and no two of one key at once.
func TestStorm(t *testing.T) {
	t.Parallel()
	var mutex sync.Mutex
	busy, count := map[string]int{}, map[string]int{}
	q := groupcommit.Queue[[2]string, string]{
		Keys: func(w [2]string) []string { return w[:] },
		Commit: func(_ context.Context, writes [][2]string) ([]string, error) {
			results := make([]string, len(writes))
			change := func(by int) {
				mutex.Lock()
				defer mutex.Unlock()
				for i, w := range writes {
					for _, key := range w {
						if busy[key] += by; busy[key] > 1 {
							t.Errorf("%s is changed twice at once", key)
						}
					}
					count[w[1]] += max(by, 0)
					results[i] = w[1]
				}
			}
			change(1)
			runtime.Gosched()
			change(-1)
			return results, nil
		},
	}
	var group sync.WaitGroup
	const clients, each = 50, 40
	for client := range clients {
		group.Go(func() {
			for n := range each {
				w := [2]string{fmt.Sprint("item", (client+n)%7), fmt.Sprint(client, "-", n)}
				if got, err := q.Do(t.Context(), w); err != nil || got != w[1] {
					t.Errorf("%v ended with %q, %v", w, got, err)
				}
			}
		})
	}
	group.Wait()
	if len(count) != clients*each {
		t.Errorf("%d writes happened, want %d", len(count), clients*each)
	}
	for w, n := range count {
		if n != 1 {
			t.Errorf("%s happened %d times", w, n)
		}
	}
}
