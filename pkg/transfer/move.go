package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/pkg/groupcommit"
	"github.com/miniserversystem/miniserver/pkg/id"
	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Scope of the keys that are issued for transfers.
const Scope = "transfer"

const (
	// KeyLifetime is how long an issued key waits to be used.
	KeyLifetime = 30 * time.Minute
	// moveTimeout bounds TX1, far below the time after which the watchdog ends it.
	moveTimeout = 5 * time.Second
	// stepTimeout bounds what is around it: waiting to take the key, and taking it; waiting
	// for TX1; finding out how a TX1 ended whose answer was lost. All but the last ends
	// after two steps and moveTimeout, so a caller waits 9.5 s at most.
	stepTimeout = 1500 * time.Millisecond
)

// Key is what a caller needs to send one transfer.
type Key struct {
	Key       string    `json:"idempotencyKey" format:"uuid"`
	ExpiresAt time.Time `json:"expiresAt" doc:"Until when it must be used."`
}

// IssueKey gives client a key for one transfer.
func (s *Store) IssueKey(ctx context.Context, client string) (Key, error) {
	key := Key{Key: uuid.NewString()}
	err := s.pool.QueryRow(ctx, `
		INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, expires_at)
		VALUES ($1, $2, $3, now() + $4::interval) RETURNING expires_at`,
		client, Scope, key.Key, KeyLifetime).Scan(&key.ExpiresAt)
	key.ExpiresAt = key.ExpiresAt.UTC()
	return key, postgres.Wrap("issue a key", err)
}

// Request is a transfer that a caller asks for.
type Request struct {
	Client string // the caller, from the signed statement
	Key    string // issued to them
	Owner  string // user id that must own From
	From   int64
	To     int64
	Amount Amount
	// Traceparent is the W3C trace context, or empty.
	Traceparent string
}

// Answer is how a request ended, or that it has not: then Body is empty.
type Answer struct {
	Status   string // of the key
	Body     []byte // the stored answer, byte for byte the same each time
	Replayed bool   // an earlier request was answered so
	// EventID and Dwell are of the request that was carried out; zero in a replay.
	EventID string        // of its event, when it SUCCEEDED and was answered at once
	Dwell   time.Duration // how long the key was IN_PROGRESS
}

// replay is the answer that is stored with a key.
func replay(snapshot string) Answer {
	var body struct{ Status string }
	_ = json.Unmarshal([]byte(snapshot), &body) // we wrote it
	return Answer{Status: body.Status, Body: []byte(snapshot), Replayed: true}
}

// Outcome reads the stored answer: the transfer's id, or why there is none.
func (a Answer) Outcome() (transferID, errorCode string) {
	var body struct{ TransferID, ErrorCode string }
	_ = json.Unmarshal(a.Body, &body) // we wrote it
	return body.TransferID, body.ErrorCode
}

// movement is what TX1 is to do. Those that wait at the same moment share a commit.
type movement struct {
	Request
	kind     string
	reverses uuid.UUID // of a REVERSAL
	hash     []byte
	attempt  uuid.UUID
	keyID    int64 // when the key is taken
	transfer uuid.UUID
}

// key names the request's key, which only one of a batch may have.
func (m movement) key() []string { return []string{m.Client + "\x1f" + m.Key} }

// accounts name both accounts. Transfers of one account share a batch or wait for each
// other: two batches of this process would only wait for its lock.
func (m movement) accounts() []string {
	return []string{strconv.FormatInt(m.From, 10), strconv.FormatInt(m.To, 10)}
}

// Transfer moves money. The answer may be SUCCEEDED, FAILED (final: a new try needs a new
// key), or IN_PROGRESS. It takes 9.5 s at most. Errors: ErrSame, ErrKey,
// ErrAccount, ErrCurrencies, idempotency.ErrReused, ErrBusy, ErrUnknown,
// fault.Unavailable.
func (s *Store) Transfer(ctx context.Context, r Request) (Answer, error) {
	if r.From == r.To {
		return Answer{}, ErrSame
	}
	if r.Owner == "" { // the database would accept any account
		return Answer{}, ErrAccount
	}
	return s.move(ctx, movement{Request: r, kind: Ordinary, hash: hash(r.From, r.To, r.Amount, "")})
}

func (s *Store) move(ctx context.Context, m movement) (Answer, error) {
	m.attempt = id.New()
	if err := ctx.Err(); err != nil {
		return Answer{}, postgres.Wrap("take a key", err)
	}
	// From here on the transfer continues if the caller hangs up: otherwise a key that is
	// taken would stay in progress until the watchdog ends it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*s.step+moveTimeout)
	defer cancel()
	t, err := s.take(ctx, m)
	if err != nil {
		return Answer{}, err
	}
	switch t.outcome {
	case "TAKEN":
		m.keyID = t.keyID
		return s.run(ctx, m)
	case "IN_PROGRESS", again:
		return Answer{Status: InProgress}, nil
	case "ENDED":
		return replay(t.snapshot), nil
	case "REUSED":
		return Answer{}, idempotency.ErrReused
	case "NO_ACCOUNT":
		return Answer{}, ErrAccount
	case "CURRENCIES":
		return Answer{}, ErrCurrencies
	}
	return Answer{}, ErrKey
}

// taken is what take_key says of a request's key.
type taken struct {
	outcome, snapshot string
	keyID             int64
}

// again is the outcome of a key that another request takes at the same moment, and
// maxAgain bounds how often that is looked at again: it may have given it back since.
const (
	again    = "AGAIN"
	maxAgain = 5
)

// take is transaction A, take_key.sql.
func (s *Store) take(ctx context.Context, m movement) (t taken, err error) {
	for range maxAgain {
		t, err = s.takes.Do(ctx, m)
		if errors.Is(err, groupcommit.ErrFull) {
			return t, ErrBusy
		}
		if err != nil {
			// Perhaps only the answer was lost: then the key is taken, and must be given back.
			_ = s.giveBack(ctx, m) // or the watchdog ends it
			return t, postgres.Wrap("take a key", err)
		}
		if t.outcome != again {
			break
		}
	}
	return t, nil
}

func (s *Store) takeAll(ctx context.Context, all []movement) (list []taken, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.step)
	defer cancel()
	n := len(all)
	clients, keys, hashes, attempts := make([]string, n), make([]string, n), make([][]byte, n), make([]uuid.UUID, n)
	owners, from, to := make([]*string, n), make([]int64, n), make([]int64, n)
	for i, m := range all {
		clients[i], keys[i], hashes[i], attempts[i], from[i], to[i] = m.Client, m.Key, m.hash, m.attempt, m.From, m.To
		if m.Owner != "" {
			owners[i] = &m.Owner
		}
	}
	err = postgres.Retry(ctx, func(ctx context.Context) error {
		list = make([]taken, n)
		rows, err := s.pool.Query(ctx, `SELECT nth, outcome, coalesce(key_id, 0), coalesce(snapshot, '') FROM `+takeKey.Called()+`($1, $2, $3, $4, $5, $6, $7, $8)`,
			Scope, clients, keys, hashes, attempts, owners, from, to)
		if err != nil {
			return err
		}
		var nth int
		var t taken
		_, err = pgx.ForEachRow(rows, []any{&nth, &t.outcome, &t.keyID, &t.snapshot}, func() error {
			list[nth-1] = t
			return nil
		})
		return err
	})
	return list, err
}

// run is TX1, move_money.sql.
func (s *Store) run(ctx context.Context, m movement) (Answer, error) {
	began := time.Now()
	m.transfer = id.New()
	answer, err := s.moves.Do(ctx, m)
	switch {
	case err == nil:
		answer.Dwell = time.Since(began)
		return answer, nil
	case errors.Is(err, groupcommit.ErrFull) || errors.Is(err, errNotBegun):
		if err := s.giveBack(ctx, m); err != nil {
			return Answer{}, ErrUnknown // the watchdog ends it
		}
		return Answer{}, ErrBusy
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.step)
	defer cancel()
	// TX1 may still commit, or have committed, or reach Postgres later. The statement that
	// locks the key's row first decides; endFailed waits for a TX1 that has locked it.
	_ = s.endFailed(asking, m.keyID, m.attempt, RolledBack) // or the watchdog does
	if answer, askErr := s.ended(asking, m.keyID); askErr == nil && answer.Status != InProgress {
		answer.Replayed, answer.Dwell = false, time.Since(began)
		return answer, nil
	}
	unknown := *ErrUnknown
	unknown.Cause = err
	return Answer{}, &unknown
}

// errNotBegun is for a TX1 that found no connection.
var errNotBegun = errors.New("TX1 has not begun")

func (s *Store) moveAll(ctx context.Context, all []movement) (list []Answer, err error) {
	acquiring, cancel := context.WithTimeout(ctx, s.step)
	defer cancel()
	conn, err := s.pool.Acquire(acquiring)
	if err != nil {
		return nil, errors.Join(errNotBegun, err)
	}
	defer conn.Release()
	moving, cancelMoving := context.WithTimeout(ctx, moveTimeout)
	defer cancelMoving()
	n := len(all)
	keys, attempts, transfers, texts := make([]int64, n), make([]uuid.UUID, n), make([]uuid.UUID, n), make([]string, n)
	from, to, amounts, kinds := make([]int64, n), make([]int64, n), make([]string, n), make([]string, n)
	reverses, traceparents := make([]*string, n), make([]string, n) // NULL for what reverses nothing
	for i, m := range all {
		keys[i], attempts[i], transfers[i], texts[i] = m.keyID, m.attempt, m.transfer, textID(m.transfer)
		from[i], to[i], amounts[i], kinds[i], traceparents[i] = m.From, m.To, m.Amount.String(), m.kind, m.Traceparent
		if m.kind == Reversal {
			text := m.reverses.String()
			reverses[i] = &text
		}
	}
	err = postgres.Retry(moving, func(ctx context.Context) error {
		list = make([]Answer, n)
		rows, err := conn.Query(ctx, `SELECT nth, snapshot, ended_as, coalesce(event_id::text, '') FROM `+moveMoney.Called()+`($1, $2, $3, $4, $5, $6, $7::text[]::numeric[], $8, $9::text[]::uuid[], $10)`,
			keys, attempts, transfers, texts, from, to, amounts, kinds, reverses, traceparents)
		if err != nil {
			return err
		}
		var nth int
		var a Answer
		_, err = pgx.ForEachRow(rows, []any{&nth, &a.Body, &a.Status, &a.EventID}, func() error {
			list[nth-1] = a
			a = Answer{}
			return nil
		})
		return err
	})
	return list, err
}

// giveBack makes a key unused again whose TX1 never began, if it is still this
// attempt's.
func (s *Store) giveBack(ctx context.Context, m movement) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.step)
	defer cancel()
	_, err := s.pool.Exec(ctx, `
		UPDATE integration.idempotency_key SET status = NULL, request_hash = NULL, attempt = NULL, started_at = NULL
		WHERE client_id = $1 AND scope = $2 AND idempotency_key = $3 AND attempt = $4 AND status = 'IN_PROGRESS'`,
		m.Client, Scope, m.Key, m.attempt)
	return err
}

// ended reads how the request of a key ended. It locks the row, which is a write, so that
// its commit waits for the synchronous standby: a server that is being replaced shows
// commits that are lost with it.
func (s *Store) ended(ctx context.Context, keyID int64) (Answer, error) {
	var status string
	var body *string
	err := s.pool.QueryRow(ctx, `SELECT status, response_snapshot FROM integration.idempotency_key WHERE idempotency_key_id = $1 FOR UPDATE`, keyID).Scan(&status, &body)
	if err != nil {
		return Answer{}, postgres.Wrap("read a key", err)
	}
	if body == nil {
		return Answer{Status: status}, nil
	}
	return Answer{Status: status, Body: []byte(*body), Replayed: true}, nil
}

// Reverse moves the money of a transfer back, once: a second reversal ends FAILED
// (ALREADY_REVERSED). The request's From, To and Amount are not read. Errors are
// those of Transfer, and ErrTransfer.
func (s *Store) Reverse(ctx context.Context, r Request, transferID string) (Answer, error) {
	reading, cancel := context.WithTimeout(ctx, s.step)
	defer cancel()
	original, err := s.Get(reading, transferID)
	if err != nil {
		return Answer{}, err
	}
	if original.Kind == Reversal {
		return Answer{}, ErrReversal
	}
	u, err := parseID(transferID)
	if err != nil {
		return Answer{}, err
	}
	if r.Amount, err = ParseAmount(original.Amount.String()); err != nil {
		return Answer{}, errors.Join(errors.New("a stored amount"), err)
	}
	r.From, r.To = original.ToAccountID, original.FromAccountID
	return s.move(ctx, movement{Request: r, kind: Reversal, reverses: u, hash: hash(0, 0, r.Amount, original.ID)})
}
