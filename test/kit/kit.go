// Package kit gives tests real servers: a database of their own cloned from a
// migrated template, and a Redis and a NATS of their own. The Postgres server
// is shared by all test processes of a run; the last one stops it.
package kit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/infra/dev/pgbouncer"
	"github.com/miniserversystem/miniserver/infra/dev/postgres"
	"github.com/miniserversystem/miniserver/infra/dev/rabbitmq"
	"github.com/miniserversystem/miniserver/infra/dev/redis"
	"github.com/miniserversystem/miniserver/migrations"
	limits "github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/rights"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

const (
	startTimeout = 3 * time.Minute // the first run may have to download Postgres
	sqlTimeout   = 60 * time.Second

	firstWithStrategy = 150000 // as server_version_num: older ones copy files anyway
)

// server is this process's handle on the Postgres server.
var server struct {
	once     sync.Once
	postgres *postgres.Server
	binaries apt.Binaries
	template string
	strategy string // how CREATE DATABASE copies the template
	err      error
}

// Main runs a package's tests and then releases the servers:
//
//	func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	stops := []func() error{}
	if server.postgres != nil {
		stops = append(stops, server.postgres.Stop)
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			fmt.Fprintln(os.Stderr, "kit:", err)
			code = max(code, 1)
		}
	}
	return code
}

func start() {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	root, err := Root()
	if err != nil {
		server.err = err
		return
	}
	dir := filepath.Join(root, ".local")
	if server.binaries, err = apt.Ensure(ctx, filepath.Join(dir, "deps"), os.Stderr); err != nil {
		server.err = err
		return
	}
	if server.postgres, err = postgres.Start(ctx, postgres.Options{
		Dir: filepath.Join(dir, "test", "postgres"), Binaries: server.binaries,
	}); err != nil {
		server.err = err
		return
	}
	server.template, server.err = ensureTemplate(ctx)
}

// Root returns the root of the repository, found by go.mod.
func Root() (string, error) { return home.Repository() }

// Database returns the URL of a migrated database that only this test uses. It is dropped
// when the test ends.
func Database(t testing.TB) string {
	t.Helper()
	server.once.Do(start)
	if server.err != nil {
		t.Fatal(server.err)
	}
	name := "test_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	admin(t, "CREATE DATABASE "+name+" TEMPLATE "+server.template+server.strategy)
	t.Cleanup(func() { admin(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	return withDatabase(server.postgres.URL(), name)
}

// Pool returns a pool on a database of this test's own.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return Connect(t, Database(t))
}

// Connect returns a pool on url that is closed when the test ends.
func Connect(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// LoneDatabase is Database on a Postgres of this test's own, for what is measured of a
// whole server. Nothing is vacuumed there.
func LoneDatabase(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	own := OwnPostgres(t, false)
	Must(t, Migrate(ctx, own.URL()))
	conn, err := pgx.Connect(ctx, own.URL())
	Must(t, err)
	defer conn.Close(ctx)
	for _, sql := range []string{"ALTER SYSTEM SET autovacuum = off", "SELECT pg_reload_conf()"} {
		_, err := conn.Exec(ctx, sql)
		Must(t, err)
	}
	return own.URL()
}

// Postgres is a server of one test's own, which may stop or kill it and start it again: it
// keeps its address.
type Postgres struct {
	*postgres.Server
	Programs string // where pg_basebackup and its like are

	t       testing.TB
	options postgres.Options
}

// OwnPostgres starts a Postgres with an empty database. It is stopped when the test ends.
// A durable one keeps what was committed when it is killed.
func OwnPostgres(t testing.TB, durable bool) *Postgres {
	t.Helper()
	server.once.Do(start)
	if server.err != nil {
		t.Fatal(server.err)
	}
	p := &Postgres{t: t, Programs: server.binaries.PostgresDir, options: postgres.Options{Dir: t.TempDir(), Binaries: server.binaries, Durable: durable}}
	p.Start()
	t.Cleanup(func() {
		if err := errors.Join(p.Stop(), home.Remove(p.options.Dir)); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Start starts it again.
func (p *Postgres) Start() {
	p.t.Helper()
	if p.Server != nil {
		Must(p.t, AwaitPort(p.URL(), startTimeout))
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var err error
	p.Server, err = postgres.Start(ctx, p.options)
	Must(p.t, err)
}

// Redis starts a Redis for this test and returns it; it is stopped when the test
// ends.
func Redis(t testing.TB) *redis.Server {
	t.Helper()
	return StartRedis(t, t.TempDir())
}

// StartRedis is Redis with its data in dir, for tests that stop and restart it: it keeps
// its address and its users. users are added, with their rights, to the one that may do
// everything.
func StartRedis(t testing.TB, dir string, users ...map[string]rights.Rights) *redis.Server {
	t.Helper()
	server.once.Do(start)
	if server.err != nil {
		t.Fatal(server.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sqlTimeout)
	defer cancel()
	redis, err := redis.Start(ctx, redis.Options{Dir: dir, Binaries: server.binaries, Users: first(users)})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, redis)
	return redis
}

// NATS starts a NATS with JetStream for this test and returns it; it is stopped when the
// test ends. users are added, with their rights, to the one that may do everything.
func NATS(t testing.TB, users ...map[string]rights.Rights) *nats.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), sqlTimeout)
	defer cancel()
	nats, err := nats.Start(ctx, nats.Options{Dir: t.TempDir(), Users: first(users)})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, nats)
	return nats
}

// stopAfter stops a server when the test ends.
func stopAfter(t testing.TB, server interface{ Stop() error }) {
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func first(users []map[string]rights.Rights) map[string]rights.Rights {
	if len(users) == 0 {
		return nil
	}
	return users[0]
}

func admin(t testing.TB, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), sqlTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, server.postgres.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatal(err)
	}
}

// ensureTemplate creates the migrated database that tests clone, once for each state of
// the migrations.
func ensureTemplate(ctx context.Context) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(migrations.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(migrations.Files, path)
		fmt.Fprintln(sum, path)
		sum.Write(content)
		return err
	})
	if err != nil {
		return "", err
	}
	for _, function := range transfer.Functions() {
		fmt.Fprintln(sum, function.Called())
	}
	fmt.Fprintln(sum, limits.StatementTimeout, limits.IdleTimeout, limits.ClientCheck)
	name := "template_" + hex.EncodeToString(sum.Sum(nil))[:16]

	conn, err := pgx.Connect(ctx, server.postgres.URL())
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	const lock = 7436201 // any number, the same in every test process
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lock); err != nil {
		return "", err
	}
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return "", err
	}
	if version >= firstWithStrategy {
		// The default, which writes each page to the log, takes six times the CPU time.
		server.strategy = " STRATEGY = file_copy"
	}
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists); err != nil || exists {
		return name, err
	}
	// Under another name until it is complete, in case this process is killed.
	if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS making_template WITH (FORCE)"); err != nil {
		return "", err
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE making_template"); err != nil {
		return "", err
	}
	if err := Migrate(ctx, withDatabase(server.postgres.URL(), "making_template")); err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, "ALTER DATABASE making_template RENAME TO "+name)
	return name, err
}

// Migrate makes all tables and logins in a database of its owner's.
func Migrate(ctx context.Context, url string) error {
	for _, domain := range migrations.Domains {
		if err := migrations.Up(ctx, url, domain); err != nil {
			return err
		}
	}
	for _, role := range migrations.Roles {
		if err := migrations.Grant(ctx, url, As(url, role.Name), role); err != nil {
			return err
		}
	}
	return nil
}

// As returns the URL of a database of Database's for one of migrations.Roles, whose login
// is miniserver_NAME with the owner's password.
func As(database, role string) string {
	u, err := url.Parse(database)
	if err != nil {
		panic(err) // the URL is ours
	}
	password, _ := u.User.Password()
	u.User = url.UserPassword("miniserver_"+role, password)
	return u.String()
}

// LeastRights replaces DATABASE_URL in environment by a URL for each domain that has none
// yet, with no more rights than the domain needs.
func LeastRights(environment map[string]string) {
	database := environment["DATABASE_URL"]
	if database == "" {
		return
	}
	delete(environment, "DATABASE_URL")
	for _, role := range migrations.Roles {
		if name := strings.ToUpper(role.Name) + "_DATABASE_URL"; environment[name] == "" {
			environment[name] = As(database, role.Name)
		}
	}
}

func withDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(err) // the URL is ours
	}
	u.Path = "/" + name
	return u.String()
}

// RabbitMQ starts a RabbitMQ with its data in dir; started again, it has the same address
// and queues. It is stopped when the test ends. The first start downloads it.
func RabbitMQ(t testing.TB, dir string) *rabbitmq.Server {
	t.Helper()
	rabbit, err := startRabbitMQ(dir)
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, rabbit)
	return rabbit
}

// MustRabbitMQ is RabbitMQ for a TestMain, which stops it itself.
func MustRabbitMQ(dir string) *rabbitmq.Server {
	rabbit, err := startRabbitMQ(dir)
	if err != nil {
		panic(err)
	}
	return rabbit
}

func startRabbitMQ(dir string) (*rabbitmq.Server, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return rabbitmq.Start(ctx, rabbitmq.Options{
		Dir: dir, Programs: filepath.Join(root, ".local", "deps"), Progress: os.Stderr,
	})
}

// PgBouncer starts a PgBouncer in transaction mode in front of Database's server, with
// size connections to each database and login. It is stopped when the test ends; started
// again in the same dir it has the same address. The first start downloads it.
func PgBouncer(t testing.TB, dir string, size int) *pgbouncer.Server {
	t.Helper()
	server.once.Do(start)
	root, err := Root()
	if err = errors.Join(server.err, err); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var logins []string
	for _, role := range migrations.Roles {
		logins = append(logins, "miniserver_"+role.Name)
	}
	bouncer, err := pgbouncer.Start(ctx, pgbouncer.Options{
		Users: logins,
		Dir:   dir, Programs: filepath.Join(root, ".local", "deps"), Progress: os.Stderr, Server: server.postgres.URL(), PoolSize: size,
	})
	if err != nil {
		t.Fatal(err)
	}
	stopAfter(t, bouncer)
	return bouncer
}

// OtherTime is an SQL condition: the id is no UUIDv7 of a time between from and to, of which
// each is rounded to a millisecond.
func OtherTime(id, from, to string) string {
	at := `('x0000' || substr(replace(` + id + `::text, '-', ''), 1, 12))::bit(64)::bigint`
	return `(substr(` + id + `::text, 15, 1) <> '7' OR ` + at + ` < (extract(epoch FROM ` + from + `) * 1000)::bigint OR ` + at + ` > (extract(epoch FROM ` + to + `) * 1000)::bigint)`
}
