//go:build chaos

package chaos_test

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/infra/dev/postgres"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/infra/dev/redis"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
	"github.com/miniserversystem/miniserver/test/system"
)

//go:embed witness.sql
var witness string

const (
	// lease is short, so that many end during a run; a pause of pastLease outlasts it.
	lease     = 2 * time.Second
	pastLease = lease + time.Second
	// ticketLife is how long a ticket waits.
	ticketLife = 20 * time.Second
	// answerWithin is how long a client waits for an answer.
	answerWithin = 15 * time.Second
	startWithin  = time.Minute
	stopWithin   = 40 * time.Second // SHUTDOWN_GRACE, and connections that hang
)

// world is the whole system: two processes with all functions, one with reconcile alone,
// which is ticked from outside, and the clients' journal.
type world struct {
	*journal
	t        *testing.T
	seed     uint64
	people   *system.CodeIssuer
	cookie   string // of somebody who has signed in, if anybody has
	private  string // keys of statements between processes
	public   string
	program  string
	dir      string
	binaries apt.Binaries

	gateways  []*process
	reconcile *process
	all       []*process
	// admin is connected directly, as the owner of everything.
	admin *pgxpool.Pool
}

// lone is a world with one server of each kind, which each process reaches through a link
// of its own.
type lone struct {
	*world
	postgres *database
	redis    *memory
	nats     *broker
}

// database is Postgres. With a disk of its own, that can be filled.
type database struct {
	*postgres.Server
	options postgres.Options
	disk    string
}

func (d *database) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	return startAgain(&d.Server, func() (*postgres.Server, error) { return postgres.Start(ctx, d.options) })
}

// memory is Redis.
type memory struct {
	*redis.Server
	options redis.Options
}

func (m *memory) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	return startAgain(&m.Server, func() (*redis.Server, error) { return redis.Start(ctx, m.options) })
}

// broker is NATS.
type broker struct {
	dir string
	*natsServer
}

// natsServer serves in a process of its own.
type natsServer struct {
	*proc.Child
	url string
}

// URL returns its connection string.
func (n *natsServer) URL() string { return n.url }

// servingNATS makes this test binary a NATS server in that folder, until it is killed.
const servingNATS = "CHAOS_NATS_DIR"

func serveNATS(dir string) error {
	options := nats.Options{Dir: dir, Users: functions.Users()}
	if host := os.Getenv(natsHost); host != "" {
		options.Host, options.Port, options.Peers, options.Password = host, natsPort, strings.Split(os.Getenv(natsPeers), ","), password
		options.Complain = os.Stdout
	}
	server, err := nats.Start(context.Background(), options)
	if err != nil {
		return err
	}
	fmt.Println(server.URL())
	select {}
}

func (b *broker) start() error { return startAgain(&b.natsServer, b.serve) }

func (b *broker) serve() (*natsServer, error) {
	log, err := os.Create(filepath.Join(b.dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), servingNATS+"="+b.dir)
	command.Stdout, command.Stderr = log, log
	child, err := proc.Start(command)
	if err != nil {
		return nil, err
	}
	var printed []byte
	for deadline := time.Now().Add(startWithin); !strings.HasPrefix(string(printed), "nats://") || !strings.HasSuffix(string(printed), "\n"); kit.Pause(poll) {
		if time.Now().After(deadline) || child.Gone() {
			return nil, errors.Join(fmt.Errorf("NATS does not start: %s", printed), child.End())
		}
		if printed, err = os.ReadFile(log.Name()); err != nil {
			return nil, errors.Join(err, child.End())
		}
	}
	return &natsServer{child, strings.TrimSpace(string(printed))}, nil
}

// startAgain starts a server where the one before it was, if there was one. A child of a
// killed Postgres may hold the port a moment longer, and Postgres would take another one,
// where the links of the processes do not lead.
func startAgain[S interface {
	comparable
	URL() string
}](server *S, start func() (S, error)) error {
	var none S
	before := *server
	if before != none {
		if err := kit.AwaitPort(before.URL(), startWithin); err != nil {
			return err
		}
	}
	now, err := start()
	if err != nil {
		return err
	}
	if *server = now; before != none && before.URL() != now.URL() {
		return errors.New("a server came back at another address than it had")
	}
	return nil
}

const poll = 10 * time.Millisecond

// process is one of the system's.
type process struct {
	name        string
	port        int
	program     string
	environment []string
	log         string
	links       map[string]*kit.Link // by store, of a lone world
	child       *proc.Child
}

func (p *process) url() string { return fmt.Sprint("http://127.0.0.1:", p.port) }

// start starts it again; what it prints is added to its log.
func (p *process) start() error {
	out, err := os.OpenFile(p.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	command := exec.Command(p.program)
	command.Env, command.Stdout, command.Stderr = p.environment, out, out
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.child, err = proc.Start(command)
	return err
}

func (p *process) kill() error { return p.child.End() }

func (p *process) printed() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (p *process) lastLine() string {
	printed := strings.TrimSpace(p.printed())
	return printed[strings.LastIndexByte(printed, '\n')+1:]
}

// newWorld prepares everything but the stores and the processes.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	root, err := kit.Root()
	kit.Must(t, err)
	w := &world{t: t, seed: seed, people: system.NewCodeIssuer(t), program: program.Build(t, root, "./infra/miniserver"), journal: newJournal()}
	w.private, w.public, err = auth.NewKeyPair()
	kit.Must(t, err)
	w.dir = t.TempDir()
	w.binaries, err = apt.Ensure(t.Context(), filepath.Join(root, ".local", "deps"), os.Stderr)
	kit.Must(t, err)
	return w
}

// newLone starts everything.
func newLone(t *testing.T, seed uint64) *lone {
	t.Helper()
	w := &lone{world: newWorld(t, seed)}
	w.postgres = &database{options: postgres.Options{Dir: filepath.Join(w.dir, "postgres"), Binaries: w.binaries, Durable: true}}
	w.ownDisk()
	kit.Must(t, w.postgres.start())
	t.Cleanup(func() {
		kit.Must(t, w.postgres.Stop())
		kit.Must(t, home.Remove(w.postgres.options.Dir))
	})
	w.redis = &memory{options: redis.Options{Dir: filepath.Join(w.dir, "redis"), Binaries: w.binaries, Users: functions.Users()}}
	kit.Must(t, w.redis.start())
	t.Cleanup(func() { kit.Must(t, w.redis.Stop()) })
	w.nats = &broker{dir: filepath.Join(w.dir, "nats")}
	kit.Must(t, os.Mkdir(w.nats.dir, 0o700))
	kit.Must(t, w.nats.start())
	t.Cleanup(func() { kit.Must(t, w.nats.End()) })
	w.migrate(w.postgres.URL())
	w.begin(w.linked)
	return w
}

// migrate makes the tables, and the witnesses of what must not happen to their rows.
func (w *world) migrate(url string) {
	w.t.Helper()
	kit.Must(w.t, kit.Migrate(w.t.Context(), url))
	w.admin = kit.Connect(w.t, url)
	_, err := w.admin.Exec(w.t.Context(), witness)
	kit.Must(w.t, err)
}

// begin starts the processes that make returns.
func (w *world) begin(make func(name, function string) *process) {
	w.t.Helper()
	for _, name := range []string{"one", "two"} {
		w.gateways = append(w.gateways, make(name, ""))
	}
	w.reconcile = make("reconcile", "reconcile")
	for _, p := range append(w.gateways, w.reconcile) {
		kit.Must(w.t, p.start())
		w.t.Cleanup(func() { kit.Must(w.t, p.kill()) })
		kit.Eventually(w.t, p.name+" is ready", func() bool {
			response, err := http.Get(p.url() + "/health/readiness")
			if err != nil {
				return false
			}
			_ = response.Body.Close()
			return response.StatusCode == http.StatusOK
		})
	}
}

// linked returns a process with links to all stores.
func (w *lone) linked(name, function string) *process {
	links := map[string]*kit.Link{}
	through := func(store, address string) string {
		link, carried := kit.Through(w.t, address)
		links[store] = link
		return carried
	}
	stores := map[string]string{
		"DATABASE_URL": through("postgres", w.postgres.URL()),
		"REDIS_URL":    through("redis", w.redis.URLAs(functions.TogetherUser)),
		"NATS_URL":     through("nats", as(functions.TogetherUser, w.nats.URL())),
	}
	if name == "two" {
		stores["POSTGRES_EXEC_MODE"] = "exec" // as behind PgBouncer; and points need the text of statements
	}
	p := w.process(name, function, stores)
	p.links = links
	return p
}

// process returns one that holds a function, or all of them, and uses those stores.
func (w *world) process(name, function string, stores map[string]string) *process {
	w.t.Helper()
	port, err := proc.FreePort(0)
	kit.Must(w.t, err)
	p := &process{name: name, port: port, program: w.program, log: filepath.Join(w.dir, name+".log")}
	environment := map[string]string{
		"FUNCTION": function, "PORT": strconv.Itoa(port), "GATEWAY_URL": p.url(),
		"OIDC_ISSUER": w.people.URL, "OIDC_CLIENT_SECRET": "unused", "IDENTITY_SIGNING_KEY": w.private, "IDENTITY_VERIFY_KEYS": w.public,
		"LEASE_DURATION": lease.String(), "WEBHOOK_TIMEOUT": "500ms", "LEASE_BACKOFF_CAP": "5s",
		"RECONCILE_AFTER": "30s", "TRANSFER_ORPHAN_AFTER": "10s", "MATCHMAKING_TTL": ticketLife.String(),
	}
	maps.Copy(environment, stores)
	environment["DATABASE_URL"] += "&application_name=" + name
	kit.LeastRights(environment)
	for name, value := range environment {
		p.environment = append(p.environment, name+"="+value)
	}
	w.all = append(w.all, p)
	return p
}

// as returns a URL with another user and the same password.
func as(user, address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err) // the URL is ours
	}
	password, _ := u.User.Password()
	u.User = url.UserPassword(user, password)
	return u.String()
}

// tick ticks the function of a process, whatever it answers.
func (p *process) tick() {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url()+"/tick", http.NoBody)
	if err != nil {
		return
	}
	if response, err := http.DefaultClient.Do(request); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}

// every calls do once a period until ctx ends.
func every(ctx context.Context, group *sync.WaitGroup, period time.Duration, do func()) {
	group.Go(func() {
		for ctx.Err() == nil {
			do()
			pause(ctx, period)
		}
	})
}

// pause waits, but not after the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// between returns a duration from low to high.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}

// keepLogs copies all logs to where they outlive the test.
func (w *world) keepLogs() {
	dir, err := os.MkdirTemp("", "chaos-")
	kit.Must(w.t, err)
	for _, p := range w.all {
		if text := p.printed(); text != "" {
			kit.Must(w.t, os.WriteFile(filepath.Join(dir, p.name+".log"), []byte(text), 0o600))
		}
	}
	w.t.Logf("the logs are in %s", dir)
}
