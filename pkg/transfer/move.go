package transfer

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

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
	// stepTimeout bounds each of the three steps around it: taking the key; getting a
	// place and a connection; finding out how a TX1 ended whose answer was lost. So a
	// caller waits 9.5 s at most.
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
	EventID string        // of its event, when it SUCCEEDED
	Dwell   time.Duration // how long the key was IN_PROGRESS
}

func (a Answer) of(event uuid.UUID, began time.Time) Answer {
	if a.Status == Succeeded {
		a.EventID = event.String()
	}
	a.Dwell = time.Since(began)
	return a
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

// movement is what TX1 is to do.
type movement struct {
	Request
	kind     string
	reverses uuid.UUID // of a REVERSAL
	hash     []byte
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
	attempt := id.New()
	var outcome string
	var keyID *int64
	var snapshot *string
	var owner *string
	if m.Owner != "" {
		owner = &m.Owner
	}
	if err := ctx.Err(); err != nil {
		return Answer{}, postgres.Wrap("take a key", err)
	}
	// From here on the transfer continues if the caller hangs up: otherwise a key that is
	// taken would stay in progress until the watchdog ends it.
	ctx = context.WithoutCancel(ctx)
	taking, cancel := context.WithTimeout(ctx, s.step)
	defer cancel()
	err := postgres.Retry(taking, func(ctx context.Context) error {
		return s.pool.QueryRow(ctx, `SELECT outcome, key_id, snapshot FROM `+takeKey.Called()+`($1, $2, $3, $4, $5, $6, $7, $8)`,
			m.Client, Scope, m.Key, m.hash, attempt, owner, m.From, m.To).Scan(&outcome, &keyID, &snapshot)
	})
	if err != nil {
		// Perhaps only the answer was lost: then the key is taken, and must be given back.
		_ = s.giveBack(ctx, m, attempt) // or the watchdog ends it
		return Answer{}, postgres.Wrap("take a key", err)
	}
	switch outcome {
	case "TAKEN":
		return s.run(ctx, m, *keyID, attempt)
	case "IN_PROGRESS":
		return Answer{Status: InProgress}, nil
	case "ENDED":
		return replay(*snapshot), nil
	case "REUSED":
		return Answer{}, idempotency.ErrReused
	case "NO_ACCOUNT":
		return Answer{}, ErrAccount
	case "CURRENCIES":
		return Answer{}, ErrCurrencies
	}
	return Answer{}, ErrKey
}

// run is TX1, move_money.sql.
func (s *Store) run(ctx context.Context, m movement, keyID int64, attempt uuid.UUID) (Answer, error) {
	began := time.Now()
	conn, leave, err := s.begin(ctx, m.From, m.To)
	if err != nil {
		if err := s.giveBack(ctx, m, attempt); err != nil {
			return Answer{}, ErrUnknown // the watchdog ends it
		}
		return Answer{}, ErrBusy
	}
	defer leave()
	moving, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	transferID, eventID := id.New(), id.New()
	var reverses *uuid.UUID
	if m.kind == Reversal {
		reverses = &m.reverses
	}
	var body, status string
	err = postgres.Retry(moving, func(ctx context.Context) error {
		return conn.QueryRow(ctx, `SELECT snapshot, ended_as FROM `+moveMoney.Called()+`($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
			keyID, attempt, transferID, textID(transferID), eventID, m.From, m.To, m.Amount.String(), m.kind, reverses, m.Traceparent,
		).Scan(&body, &status)
	})
	conn.Release() // asking takes another one
	if err == nil {
		return Answer{Status: status, Body: []byte(body)}.of(eventID, began), nil
	}
	asking, cancelAsking := context.WithTimeout(ctx, s.step)
	defer cancelAsking()
	// TX1 may still commit, or have committed, or reach Postgres later. The statement that
	// locks the key's row first decides; endFailed waits for a TX1 that has locked it.
	_ = s.endFailed(asking, keyID, attempt, RolledBack) // or the watchdog does
	if answer, askErr := s.ended(asking, keyID); askErr == nil && answer.Status != InProgress {
		answer.Replayed = false
		return answer.of(eventID, began), nil
	}
	unknown := *ErrUnknown
	unknown.Cause = err
	return Answer{}, &unknown
}

// begin waits for a place at both accounts, and for a connection. leave gives the
// place up.
func (s *Store) begin(ctx context.Context, from, to int64) (conn *pgxpool.Conn, leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, s.step)
	defer cancel()
	if leave, err = s.gate.enter(ctx, from, to); err != nil {
		return nil, nil, err
	}
	if conn, err = s.pool.Acquire(ctx); err != nil {
		leave()
		return nil, nil, err
	}
	return conn, leave, nil
}

// giveBack makes a key unused again whose TX1 never began, if it is still this
// attempt's.
func (s *Store) giveBack(ctx context.Context, m movement, attempt uuid.UUID) error {
	ctx, cancel := context.WithTimeout(ctx, s.step)
	defer cancel()
	_, err := s.pool.Exec(ctx, `
		UPDATE integration.idempotency_key SET status = NULL, request_hash = NULL, attempt = NULL, started_at = NULL
		WHERE client_id = $1 AND scope = $2 AND idempotency_key = $3 AND attempt = $4 AND status = 'IN_PROGRESS'`,
		m.Client, Scope, m.Key, attempt)
	return err
}

// ended reads how the request of a key ended.
func (s *Store) ended(ctx context.Context, keyID int64) (Answer, error) {
	var status string
	var body *string
	err := s.pool.QueryRow(ctx, `SELECT status, response_snapshot FROM integration.idempotency_key WHERE idempotency_key_id = $1`, keyID).Scan(&status, &body)
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
