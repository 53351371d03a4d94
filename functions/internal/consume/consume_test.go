package consume_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/miniserversystem/miniserver/functions/internal/consume"
	"github.com/miniserversystem/miniserver/pkg/deadletter"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/pkg/lease"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// message is a message in a broker, with its outcome.
type message struct {
	id                              string
	delivered                       uint64
	unreadable                      bool
	acknowledged, again, terminated bool
}

func (m *message) Ack() error                { m.acknowledged = true; return nil }
func (m *message) Again(time.Duration) error { m.again = true; return nil }
func (m *message) Terminate(string) error    { m.terminated = true; return nil }

// broker delivers its messages once.
type broker []*message

func (b *broker) Fetch(context.Context, int) (deliveries []event.Delivery, err error) {
	for _, m := range *b {
		payload, err := json.Marshal(map[string]any{"event_id": m.id, "event_type": "EntitlementGranted", "user_id": "u_1", "version": 1})
		if err != nil {
			return nil, err
		}
		encoded, err := event.Encode(event.Record{ID: m.id, Type: "EntitlementGranted", Key: "k", Payload: payload})
		if err != nil {
			return nil, err
		}
		if m.unreadable {
			encoded.Data = []byte("\xff")
		}
		deliveries = append(deliveries, event.Delivery{Message: encoded, Delivered: m.delivered, Acknowledger: m})
	}
	*b = nil
	return deliveries, nil
}

var errData = errors.New("the data is at fault")

// store fails statements that hold a bad event; letter fails its dead letters.
type store struct {
	bad        map[string]error
	all        error // of every statement
	letter     error
	statements int
	accepted   []string
	letters    []string
}

func (s *store) AcceptAll(_ context.Context, records []event.Record) error {
	s.statements++
	if s.all != nil {
		return s.all
	}
	for _, r := range records {
		if err := s.bad[r.ID]; err != nil {
			return err
		}
	}
	for _, r := range records {
		s.accepted = append(s.accepted, r.ID)
	}
	return nil
}

func (s *store) Poison(err error) bool { return errors.Is(err, errData) }

func (s *store) DeadLetter(_ context.Context, l deadletter.Letter) error {
	if s.letter == nil {
		s.letters = append(s.letters, l.EventID)
	}
	return s.letter
}

// fixture is 200 messages that were delivered before, on their way to a store.
type fixture struct {
	messages []*message
	store    *store
	source   tick.Source
}

func setup(t *testing.T, delivered uint64) *fixture {
	t.Helper()
	f := &fixture{store: &store{bad: map[string]error{}}}
	for range 200 {
		f.messages = append(f.messages, &message{id: uuid.NewString(), delivered: delivered})
	}
	loaded, err := settings.LoadFrom(map[string]string{})
	if err != nil {
		t.Fatal(err)
	}
	runtime := fn.NewRuntime(loaded, slog.New(slog.DiscardHandler), nil)
	t.Cleanup(runtime.Close)
	err = runtime.Host(fn.Function{Name: "consumes", Wakes: []string{"next"}, New: func(e *fn.Env) error {
		queue := broker(slices.Clone(f.messages))
		consumption, err := consume.New(e, f.store, "next")
		if err == nil {
			f.source = consumption.Source("test", &queue)
		}
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) step(t *testing.T) (lease.Report, error) {
	t.Helper()
	report, err := f.source.Step(t.Context())
	for i, m := range f.messages {
		accepted, put := slices.Contains(f.store.accepted, m.id), slices.Contains(f.store.letters, m.id)
		if m.acknowledged != accepted || m.terminated != put || m.again == (accepted || put) {
			t.Errorf("message %d: accepted %v, put aside %v; and acknowledged %v, terminated %v, asked for again %v",
				i, accepted, put, m.acknowledged, m.terminated, m.again)
		}
	}
	return report, err
}

// One event fails every statement that it is in, with an error that does not name it. The
// other 199 are accepted all the same, wherever it stands.
func TestEventThatFailsForNoReasonOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, at := range []int{0, 1, 99, 199} {
		for name, cause := range map[string]error{"unknown": errors.New("some bug"), "too slow": fault.Unreachable("The database", errors.New("timeout"))} {
			t.Run(fmt.Sprint(name, " at ", at), func(t *testing.T) {
				t.Parallel()
				f := setup(t, 2)
				f.store.bad[f.messages[at].id] = cause
				report, err := f.step(t)
				if report.Done != 199 || report.Retried != 1 || err != nil || !report.More {
					t.Errorf("%+v, %v; want the other 199 done, and more", report, err)
				}
				if !f.messages[at].again {
					t.Error("the event that fails is not redelivered")
				}
			})
		}
	}
}

// An event that failed alone often enough, while the store accepted others, becomes a
// dead letter; but never while the store is too slow or away.
func TestEventThatFailsForGood(t *testing.T) {
	t.Parallel()
	conflict := postgres.Wrap("accept events", &pgconn.PgError{Code: "40001"})
	for cause, want := range map[error]int{errors.New("some bug"): 1, conflict: 1, fault.Unreachable("The database", errors.New("timeout")): 0} {
		f := setup(t, 10)
		f.store.bad[f.messages[50].id] = cause
		report, err := f.step(t)
		if report.Done != 199 || report.Dead != want || len(f.store.letters) != want || err != nil {
			t.Errorf("%v: %+v, %d letters, %v; want %d", cause, report, len(f.store.letters), err, want)
		}
	}
}

// A store that is away is no event's fault, however often the messages came: all are
// redelivered, after few statements.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	for delivered, most := range map[uint64]int{1: 1, 50: 16} {
		for _, cause := range []error{errors.New("a table is missing"), fault.Unreachable("The database", errors.New("refused"))} {
			f := setup(t, delivered)
			f.store.all = cause
			report, err := f.step(t)
			if err == nil || report.Done+report.Dead > 0 || report.Retried != 200 || report.More {
				t.Errorf("%v: %+v, %v; want 200 again, and the error", cause, report, err)
			}
			if f.store.statements > most {
				t.Errorf("%d statements to find that out after %d deliveries, want at most %d", f.store.statements, delivered, most)
			}
		}
	}
}

// Poison becomes a dead letter at once, alone, and is terminated only when its letter is
// stored.
func TestPoisonIsKeptBeforeItIsTerminated(t *testing.T) {
	t.Parallel()
	for _, letter := range []error{nil, errors.New("the database says no"), fault.Unreachable("The database", errors.New("away"))} {
		f := setup(t, 1)
		f.messages[3].unreadable = true
		f.store.bad[f.messages[7].id] = errData
		f.store.letter = letter
		report, err := f.step(t)
		if report.Done != 198 {
			t.Errorf("letter %v: %+v, want the other 198 done", letter, report)
		}
		if letter == nil && (report.Dead != 2 || err != nil) {
			t.Errorf("%+v, %v; want 2 put aside", report, err)
		}
		if letter != nil && (report.Dead != 0 || report.Retried != 2 || err == nil) {
			t.Errorf("letter %v: %+v, %v; want 2 again, and the error", letter, report, err)
		}
	}
}
