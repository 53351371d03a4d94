// Package postgres opens connection pools and classifies the errors of Postgres: the
// server is away (the caller may simply retry), two transactions conflicted, or the data
// itself is invalid.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

const (
	connectTimeout    = 3 * time.Second
	maxConnIdle       = 5 * time.Minute
	healthCheckPeriod = 15 * time.Second
	// A connection that was idle for longer than idleUnseen is asked whether it lives, for
	// aliveWithin at most.
	idleUnseen  = time.Second
	aliveWithin = time.Second
	// A connection is replaced after 4 to 5 minutes, because its server may no longer be
	// the primary, and its name may resolve to another one. The jitter keeps connections
	// that were opened together from being replaced together.
	maxConnLifetime       = 4 * time.Minute
	maxConnLifetimeJitter = time.Minute
)

// Limits of every statement and transaction. They are set on each session where no pooler
// refuses that, and on the roles by package migrations.
const (
	StatementTimeout = 10 * time.Second
	IdleTimeout      = 5 * time.Second // within a transaction
	// ClientCheck is how often a server looks for the client of a running statement, which
	// ends when its client has gone: nobody sends cancel requests.
	ClientCheck = 250 * time.Millisecond
)

// readOnly is the SQLSTATE of a write to a server, or in a session, that only reads.
const readOnly = "25006"

var execModes = map[string]pgx.QueryExecMode{
	"cache_statement": pgx.QueryExecModeCacheStatement,
	"cache_describe":  pgx.QueryExecModeCacheDescribe,
	"describe_exec":   pgx.QueryExecModeDescribeExec,
	"exec":            pgx.QueryExecModeExec,
	"simple_protocol": pgx.QueryExecModeSimpleProtocol,
}

// Open returns a pool of at most size connections. It does not connect: a pool
// is ready when its first query answers. execMode is one of pgx's, by its name
// in POSTGRES_EXEC_MODE. tracer may be nil.
//
// The URL may name several hosts, which are tried in their order, each for 3 s or the URL's
// connect_timeout. Unless the URL has a target_session_attrs, connections are made to
// servers that can write only. A write that is refused because its server only reads closes
// all connections of the pool: after a failover the next statement gets a new one. So does
// an idle connection that is silent for a second when it is needed again: its machine has
// gone without a word, or what is between has forgotten it, and the others with it.
func Open(url string, size int32, execMode string, tracer pgx.QueryTracer) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(Writing(url))
	if err != nil {
		// pgx hides the password, but the rest of the URL is better not logged either.
		return nil, errors.New("the database URL cannot be read; it should look like postgres://user:password@host:5432/name")
	}
	mode, ok := execModes[execMode]
	if !ok {
		return nil, fmt.Errorf("POSTGRES_EXEC_MODE %q is unknown; use cache_statement, or exec behind an old pooler", execMode)
	}
	config.ConnConfig.DefaultQueryExecMode = mode
	if !strings.Contains(url, "connect_timeout=") {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	config.ConnConfig.Tracer = tracer
	config.AfterConnect = registerTypes
	config.MaxConns = size
	config.MinConns = 0
	config.MaxConnIdleTime = maxConnIdle
	config.MaxConnLifetime = maxConnLifetime
	config.MaxConnLifetimeJitter = maxConnLifetimeJitter
	config.HealthCheckPeriod = healthCheckPeriod
	// Poolers refuse unknown start-up parameters, so set these only where the server
	// keeps a session for us.
	if mode == pgx.QueryExecModeCacheStatement {
		config.ConnConfig.RuntimeParams["statement_timeout"] = fmt.Sprint(StatementTimeout.Milliseconds())
		// A process that freezes in a transaction blocks the vacuum of old rows.
		config.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = fmt.Sprint(IdleTimeout.Milliseconds())
		config.ConnConfig.RuntimeParams["timezone"] = "UTC"
		config.ConnConfig.RuntimeParams["client_connection_check_interval"] = fmt.Sprint(ClientCheck.Milliseconds())
	}
	config.BeforeConnect = cancelNothing
	var opened atomic.Pointer[pgxpool.Pool]
	dropAll := func() {
		if pool := opened.Load(); pool != nil {
			pool.Reset()
		}
	}
	// The pool's own ping has no effect on other connections: each would cost a request its
	// time. It follows if this one fails, and finds the connection closed.
	config.ShouldPing = func(ctx context.Context, idle pgxpool.ShouldPingParams) bool {
		if idle.IdleDuration < idleUnseen {
			return false
		}
		// A caller who gives up meanwhile says nothing about the connection.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), aliveWithin)
		defer cancel()
		err := idle.Conn.Ping(ctx)
		if err != nil {
			dropAll()
		}
		return err != nil
	}
	keep := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code != readOnly {
			return keep(conn, err)
		}
		dropAll()
		return false // closes this one
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	opened.Store(pool)
	return pool, nil
}

// Writing returns url with target_session_attrs=read-write, unless it has another one:
// connections go to a server that can write.
func Writing(url string) string {
	const attribute = "target_session_attrs="
	separator := "?"
	switch {
	case strings.Contains(url, attribute):
		return url
	case !strings.Contains(url, "://"):
		separator = " "
	case strings.Contains(url, "?"):
		separator = "&"
	}
	return url + separator + attribute + "read-write"
}

// cancelNothing keeps a connection from sending a cancel request when its caller has gone,
// and closes it instead. A commit that waits for the synchronous standby would be cancelled,
// too: the server then keeps and shows it, a retry is answered that it is done, and the
// failover that comes loses it. A server that finds its client gone ends the statement, but
// not that wait.
func cancelNothing(_ context.Context, config *pgx.ConnConfig) error {
	var made atomic.Pointer[pgconn.PgConn]
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if conn := made.Load(); conn != nil { // what dials after that cancels
			return nil, errors.Join(errors.ErrUnsupported, conn.Conn().Close())
		}
		return dial(ctx, network, address)
	}
	config.AfterConnect = func(_ context.Context, conn *pgconn.PgConn) error {
		made.Store(conn)
		return nil
	}
	return nil
}

// Code returns the SQLSTATE of err, or "".
func Code(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// SQLSTATE values that the stores act on.
const (
	UniqueViolation = "23505"
)

// Conflicted reports whether err is a deadlock or a serialization failure, or a row's
// partition was made while the statement ran: the same transaction may be retried at once.
func Conflicted(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	// A CHECK that a row violates has a name, the bounds of a partition have none.
	return pg.Code == "40001" || pg.Code == "40P01" || pg.Code == "23514" && pg.ConstraintName == ""
}

// BadData reports whether the statement failed because of the values it was given
// (classes 22, 23 and 54: invalid, refused, and too large for Postgres): a retry
// cannot help.
func BadData(err error) bool {
	code := Code(err)
	return strings.HasPrefix(code, "22") || strings.HasPrefix(code, "23") || strings.HasPrefix(code, "54")
}

// Unavailable reports whether err means that Postgres could not be reached, is
// starting, stopping, out of connections, or read-only after a failover. A server that
// refuses the connection itself is away too, whatever its reason (a password, a
// missing database): the caller's request was not at fault.
func Unavailable(err error) bool {
	if err == nil {
		return false
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return true
	}
	switch code := Code(err); {
	case strings.HasPrefix(code, "08"), strings.HasPrefix(code, "53"), strings.HasPrefix(code, "57P"), code == readOnly:
		return true
	case code == "57014": // statement timeout: too slow counts as away
		return true
	case code != "":
		return false
	}
	var network net.Error
	return errors.As(err, &network) || pgconn.Timeout(err) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, net.ErrClosed) ||
		strings.Contains(err.Error(), "unexpected EOF") || strings.Contains(err.Error(), "conn closed") ||
		strings.Contains(err.Error(), "closed pool")
}

// errPooler is the advice when a pooler refuses the parameters of a session.
var errPooler = errors.New("set POSTGRES_EXEC_MODE=exec, which this pooler needs")

// Wrap gives err the operation's name, and turns an unreachable server, and a conflict,
// into a fault that the caller can act on. It returns nil for nil.
func Wrap(operation string, err error) error {
	if err != nil && strings.Contains(err.Error(), "unsupported startup parameter") {
		err = fmt.Errorf("%w: %w", errPooler, err)
	}
	switch {
	case err == nil:
		return nil
	case Unavailable(err):
		return fault.Unreachable("The database", fmt.Errorf("%s: %w", operation, err))
	case Conflicted(err):
		return &fault.Error{
			Kind: fault.Unavailable, Code: "unavailable", Detail: "Other requests change the same all the time; send the same request again.",
			RetryAfter: fault.DefaultRetryAfter, Cause: fmt.Errorf("%s: %w", operation, err),
		}
	}
	return fmt.Errorf("%s: %w", operation, err)
}

// maxTries bounds Retry: five tries; more is a lock-order bug.
const maxTries = 5

// Retry runs do again while it fails with a conflict, at most five times. It is the one
// place where transactions retry.
func Retry(ctx context.Context, do func(context.Context) error) error {
	var err error
	for try := range maxTries {
		if err = do(ctx); err == nil || !Conflicted(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(1+try*try) * time.Millisecond):
		}
	}
	return err
}
