//go:build chaos

package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	goredis "github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/pgbouncer"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/migrations"
	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

const (
	password = "replicas-of-a-test" // of every user

	etcdPort     = 2379
	patroniPort  = 8008
	postgresPort = 5432
	natsPort     = 4222
	queuePort    = 6379 // of a primary of the Redis Cluster
	replicaPort  = 6380 // of a replica of another machine's primary
	sessionPort  = 6390
	sentinelPort = 26379
	slots        = 16384

	formWithin    = 2 * time.Minute
	askWithin     = 2 * time.Second
	standbyWithin = 45 * time.Second
	disksBytes    = 6 << 30
)

// replicated is a world on three machines. Each has a member of etcd, a NATS server, a
// primary of the Redis Cluster of the queues with a replica of another one, and a Sentinel.
// The first two have Postgres under Patroni, and the Redis of sessions.
type replicated struct {
	*world
	machines []*machine
	account  *home.Account
	postgres map[*machine]*service // Patroni, with its Postgres
	nats     map[*machine]*service
	queues   map[*machine]*service // the primaries, as long as nothing failed
	sessions map[*machine]*service
	nodes    map[string]*goredis.Client // by address
	behind   map[string]time.Time       // since when a stream has a replica that is behind
	ledAnew  int                        // streams of which another replica became the leader
	alone    time.Time                  // since when Postgres has no synchronous standby
	remade   int                        // standbys that did not find back
}

func newReplicated(t *testing.T, seed uint64) *replicated {
	t.Helper()
	w := &replicated{
		world: newWorld(t, seed), postgres: map[*machine]*service{}, nats: map[*machine]*service{}, queues: map[*machine]*service{},
		sessions: map[*machine]*service{}, nodes: map[string]*goredis.Client{}, behind: map[string]time.Time{},
	}
	var err error
	w.account, err = home.ServerAccount()
	kit.Must(t, err)
	dir, err := os.MkdirTemp("/var/tmp", "miniserver-ha-") // where Postgres' account gets to
	kit.Must(t, err)
	// The machines' disks are in memory: on one disk for all, the primary's writes would
	// hold up etcd's, and Patroni would take that for an outage.
	kit.Must(t, syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("mode=755,size=%d", disksBytes)))
	t.Cleanup(func() {
		if t.Failed() {
			w.keepStoresLogs()
		}
		kit.Must(t, errors.Join(syscall.Unmount(dir, syscall.MNT_DETACH), os.Remove(dir)))
	})
	w.machines = newMachines(t, dir, 3)
	t.Cleanup(func() {
		for _, m := range w.machines {
			kit.Must(t, m.kill())
		}
	})
	root, err := kit.Root()
	kit.Must(t, err)
	deps := filepath.Join(root, ".local", "deps")
	tree, libraries, err := apt.Unpacked(t.Context(), deps, "patroni", os.Stderr, "patroni", "etcd-server", "haproxy", "python3-cdiff", "python3-colorama",
		"python3-click", "python3-dateutil", "python3-wcwidth", "python3-prettytable", "python3-psutil", "python3-urllib3", "python3-psycopg2", "python3-dnspython", "python3-etcd")
	kit.Must(t, err)

	w.addEtcd(tree)
	w.addPatroni(tree, libraries)
	w.addNATS()
	w.addRedis()
	for _, m := range w.machines {
		kit.Must(t, m.start())
	}
	w.formCluster()
	w.await("everything is replicated", formWithin)
	say("everything is replicated")

	owner := "postgres://miniserver:" + password + "@" + w.hosts(postgresPort, w.machines[:2]) + "/%s?sslmode=disable"
	conn, err := pgx.Connect(t.Context(), postgres.Writing(fmt.Sprintf(owner, "postgres")))
	kit.Must(t, err)
	_, err = conn.Exec(t.Context(), "CREATE DATABASE miniserver TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
	kit.Must(t, errors.Join(err, conn.Close(t.Context())))
	direct := fmt.Sprintf(owner, "miniserver")
	kit.Within(t, formWithin, "the standby has the database, too", func() bool {
		conn, err := pgx.Connect(t.Context(), postgres.Writing(direct))
		return err == nil && conn.Close(t.Context()) == nil
	})
	w.migrate(postgres.Writing(direct))
	pooled := w.pooler(tree, libraries, deps)
	w.begin(func(name, function string) *process {
		stores := map[string]string{
			"DATABASE_URL": direct, "STREAM_REPLICAS": "3", "REDIS_CLUSTER": "true",
			"REDIS_URL":         "redis://" + functions.TogetherUser + ":" + password + "@" + w.machines[0].at(queuePort) + w.further(queuePort, "?"),
			"SESSION_REDIS_URL": "redis://" + w.machines[0].at(sentinelPort) + "?master_name=sessions&username=" + functions.TogetherUser + "&password=" + password + w.further(sentinelPort, "&"),
			"NATS_URL":          w.brokers(functions.TogetherUser),
		}
		if name == "two" {
			stores["DATABASE_URL"], stores["POSTGRES_EXEC_MODE"] = pooled, "exec"
		}
		return w.process(name, function, stores)
	})
	visitor := (&system.System{T: t, URL: w.gateways[0].url()}).Visitor()
	visitor.SignIn(w.people, "/docs", system.SigningIn{Subject: "visitor", Access: map[string]any{"exp": time.Now().Add(tokenLife).Unix()}})
	w.cookie = visitor.CookieHeader()
	return w
}

// keepStoresLogs copies the logs of all services to where they outlive the test.
func (w *replicated) keepStoresLogs() {
	dir, err := os.MkdirTemp("", "ha-")
	kit.Must(w.t, err)
	for _, m := range w.machines {
		logs, err := filepath.Glob(filepath.Join(m.dir, "*.log"))
		kit.Must(w.t, err)
		for _, log := range logs {
			text, err := os.ReadFile(log)
			kit.Must(w.t, errors.Join(err, os.WriteFile(filepath.Join(dir, m.name+"-"+filepath.Base(log)), text, 0o600)))
		}
	}
	w.t.Logf("the stores' logs are in %s", dir)
}

func (m *machine) at(port int) string { return fmt.Sprint(m.address, ":", port) }

func (w *replicated) hosts(port int, of []*machine) string {
	var list []string
	for _, m := range of {
		list = append(list, m.at(port))
	}
	return strings.Join(list, ",")
}

// further names the second and the third machine in a URL of Redis.
func (w *replicated) further(port int, separator string) (parameters string) {
	for _, m := range w.machines[1:] {
		parameters += separator + "addr=" + m.at(port)
		separator = "&"
	}
	return parameters
}

func (w *replicated) brokers(user string) string {
	var list []string
	for _, m := range w.machines {
		list = append(list, "nats://"+user+":"+password+"@"+m.at(natsPort))
	}
	return strings.Join(list, ",")
}

// folder makes one on the machine for the account.
func (w *replicated) folder(m *machine, name string, account *home.Account) string {
	dir := filepath.Join(m.dir, name)
	kit.Must(w.t, os.Mkdir(dir, 0o700))
	kit.Must(w.t, account.Own(dir))
	return dir
}

func (w *replicated) addEtcd(tree string) {
	var members []string
	for _, m := range w.machines {
		members = append(members, m.name+"=http://"+m.at(etcdPort+1))
	}
	for _, m := range w.machines {
		peers, clients := "http://"+m.at(etcdPort+1), "http://"+m.at(etcdPort)
		m.service("etcd", proc.Environment(""), filepath.Join(tree, "usr", "bin", "etcd"), "--name", m.name, "--data-dir", w.folder(m, "etcd", nil),
			"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--listen-client-urls", clients, "--advertise-client-urls", clients,
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-state", "new", "--logger", "zap", "--enable-v2")
	}
}

// addPatroni has Patroni run Postgres with a synchronous standby. A primary that nobody
// hears of is replaced after ttl.
func (w *replicated) addPatroni(tree, libraries string) {
	for _, m := range w.machines[:2] {
		dir := w.folder(m, "postgres", w.account)
		config := map[string]any{
			"scope": "miniserver", "name": m.name,
			"restapi": map[string]any{"listen": m.at(patroniPort), "connect_address": m.at(patroniPort)},
			// Not "etcd3": after a partition Patroni 3.0 takes what it remembers of etcd 3 for what
			// is there, and two primaries answer.
			"etcd": map[string]any{"hosts": w.hosts(etcdPort, w.machines)},
			"bootstrap": map[string]any{
				"dcs": map[string]any{
					"ttl": 10, "loop_wait": 2, "retry_timeout": 4, "synchronous_mode": true, "maximum_lag_on_failover": 1 << 20,
					"postgresql": map[string]any{"use_pg_rewind": true, "use_slots": true, "parameters": map[string]any{
						"max_connections": 150, "synchronous_commit": "on", "wal_log_hints": "on", "wal_keep_size": "512MB",
						"wal_sender_timeout": "3s", "wal_receiver_timeout": "3s", "shared_buffers": "64MB",
					}},
				},
				"initdb": []any{map[string]any{"encoding": "UTF8"}, map[string]any{"locale": "C"}, "data-checksums"},
				"pg_hba": []any{"host all all 0.0.0.0/0 scram-sha-256", "host replication all 0.0.0.0/0 scram-sha-256"},
			},
			"postgresql": map[string]any{
				"listen": m.at(postgresPort), "connect_address": m.at(postgresPort), "data_dir": filepath.Join(dir, "data"), "bin_dir": w.binaries.PostgresDir,
				"pgpass": filepath.Join(dir, "pgpass"), "basebackup": []any{map[string]any{"checkpoint": "fast"}},
				"authentication": map[string]any{
					"superuser":   map[string]any{"username": "miniserver", "password": password},
					"replication": map[string]any{"username": "replicator", "password": password},
					"rewind":      map[string]any{"username": "rewinder", "password": password},
				},
				"parameters": map[string]any{"unix_socket_directories": dir},
			},
		}
		text, err := json.Marshal(config) // which is YAML, too
		kit.Must(w.t, err)
		file := filepath.Join(dir, "patroni.yaml")
		kit.Must(w.t, os.WriteFile(file, text, 0o600))
		kit.Must(w.t, w.account.Own(file))
		environment := proc.Environment(strings.Trim(w.binaries.PostgresLibraries+":"+libraries, ":"))
		environment = append(environment, "PYTHONPATH="+filepath.Join(tree, "usr", "lib", "python3", "dist-packages"), "HOME="+dir)
		w.postgres[m] = m.service("patroni", environment, "/usr/bin/python3", filepath.Join(tree, "usr", "bin", "patroni"), file)
		w.postgres[m].account = w.account
	}
}

// The settings of a NATS server of a cluster, beside servingNATS.
const (
	natsHost  = "CHAOS_NATS_HOST"
	natsPeers = "CHAOS_NATS_PEERS"
)

func (w *replicated) addNATS() {
	self, err := os.Executable()
	kit.Must(w.t, err)
	for _, m := range w.machines {
		var peers []string
		for _, other := range m.others {
			peers = append(peers, other.address)
		}
		w.nats[m] = m.service("nats", append(os.Environ(), servingNATS+"="+w.folder(m, "nats", nil), natsHost+"="+m.address, natsPeers+"="+strings.Join(peers, ",")), self)
	}
}

func (w *replicated) addRedis() {
	var users strings.Builder
	fmt.Fprintf(&users, "user default on >%s ~* &* +@all\n", password)
	for user, rights := range functions.Users() {
		fmt.Fprintf(&users, "user %s on >%s %s\n", user, password, strings.Join(rights.Redis(), " "))
	}
	add := func(m *machine, name string, port int, settings string, arguments ...string) *service {
		dir := w.folder(m, name, nil)
		acl := filepath.Join(dir, "users.acl")
		kit.Must(w.t, os.WriteFile(acl, []byte(users.String()), 0o600))
		file := filepath.Join(dir, "redis.conf")
		kit.Must(w.t, os.WriteFile(file, fmt.Appendf(nil, "bind %s\nport %d\nprotected-mode no\ndir %s\n%s", m.address, port, dir, strings.ReplaceAll(settings, "ACL", acl)), 0o600))
		if len(arguments) == 0 {
			w.nodes[m.at(port)] = goredis.NewClient(&goredis.Options{Addr: m.at(port), Password: password, MaxRetries: -1, DialTimeout: askWithin, ReadTimeout: askWithin})
			w.t.Cleanup(func() { _ = w.nodes[m.at(port)].Close() })
		}
		return m.service(name, proc.Environment(w.binaries.RedisLibraries), append([]string{w.binaries.RedisServer, file}, arguments...)...)
	}
	const data = "aclfile ACL\nappendonly yes\nappendfsync everysec\nsave \"\"\nmasterauth " + password + "\nrepl-timeout 5\nrepl-ping-replica-period 1\n"
	for i, m := range w.machines {
		const clustered = data + "cluster-enabled yes\ncluster-node-timeout 2000\ncluster-allow-replica-migration no\n"
		w.queues[m] = add(m, "queues", queuePort, clustered)
		add(m, "queues-replica", replicaPort, clustered)
		if i < 2 {
			role := ""
			if i > 0 {
				role = fmt.Sprintf("replicaof %s %d\n", w.machines[0].address, sessionPort)
			}
			w.sessions[m] = add(m, "sessions", sessionPort, data+role)
		}
		add(m, "sentinel", sentinelPort, fmt.Sprintf("sentinel monitor sessions %s %d 2\nsentinel auth-pass sessions %s\n"+
			"sentinel down-after-milliseconds sessions 2000\nsentinel failover-timeout sessions 5000\n", w.machines[0].address, sessionPort, password), "--sentinel")
	}
}

// formCluster makes one cluster of the queues' nodes.
func (w *replicated) formCluster() {
	ctx := w.t.Context()
	first := w.machines[0]
	for i, m := range w.machines {
		node := w.nodes[m.at(queuePort)]
		kit.Within(w.t, formWithin, "Redis of "+m.name+" answers", func() bool {
			return node.Ping(ctx).Err() == nil && w.nodes[m.at(replicaPort)].Ping(ctx).Err() == nil
		})
		kit.Must(w.t, node.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", slots*i/len(w.machines), slots*(i+1)/len(w.machines)-1).Err())
		kit.Must(w.t, node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		for _, port := range []int{queuePort, replicaPort} {
			kit.Must(w.t, w.nodes[m.at(port)].ClusterMeet(ctx, first.address, fmt.Sprint(queuePort)).Err())
		}
	}
	for i, m := range w.machines {
		id, err := w.nodes[m.at(queuePort)].Do(ctx, "CLUSTER", "MYID").Text()
		kit.Must(w.t, err)
		replica := w.nodes[w.machines[(i+1)%len(w.machines)].at(replicaPort)]
		kit.Within(w.t, formWithin, "the nodes of the cluster know each other", func() bool { return replica.ClusterReplicate(ctx, id).Err() == nil })
	}
}

// pooler starts what process two connects through: PgBouncer, before HAProxy, which sends
// connections to the primary that Patroni names.
func (w *replicated) pooler(tree, libraries, deps string) (url string) {
	port, err := proc.FreePort(0)
	kit.Must(w.t, err)
	config := fmt.Sprintf("defaults\n mode tcp\n timeout connect 2s\n timeout client 30m\n timeout server 30m\n timeout check 1s\n"+
		"listen primary\n bind 127.0.0.1:%d\n option httpchk OPTIONS /primary\n http-check expect status 200\n"+
		" default-server inter 1s fall 2 rise 1 on-marked-down shutdown-sessions\n", port)
	for _, m := range w.machines[:2] {
		config += fmt.Sprintf(" server %s %s check port %d\n", m.name, m.at(postgresPort), patroniPort)
	}
	file := filepath.Join(w.dir, "haproxy.cfg")
	kit.Must(w.t, os.WriteFile(file, []byte(config), 0o600))
	cmd := exec.Command(filepath.Join(tree, "usr", "sbin", "haproxy"), "-db", "-f", file)
	cmd.Env = proc.Environment(libraries)
	haproxy, err := proc.Server{Command: cmd, Log: filepath.Join(w.dir, "haproxy.log"), Ready: proc.Accepts(port), Within: startWithin}.Start(w.t.Context())
	kit.Must(w.t, err)
	w.t.Cleanup(func() { kit.Must(w.t, haproxy.End()) })
	var logins []string
	for _, role := range migrations.Roles {
		logins = append(logins, "miniserver_"+role.Name)
	}
	base := fmt.Sprintf("postgres://miniserver:%s@127.0.0.1:%d/miniserver?sslmode=disable", password, port)
	bouncer, err := pgbouncer.Start(w.t.Context(), pgbouncer.Options{
		Dir: filepath.Join(w.dir, "pgbouncer"), Programs: deps, Progress: os.Stderr, Server: base, Users: logins, PoolSize: 10,
	})
	kit.Must(w.t, err)
	w.t.Cleanup(func() { kit.Must(w.t, bouncer.Stop()) })
	url, err = bouncer.URL(base)
	kit.Must(w.t, err)
	return url
}

// await waits until every store has all its replicas.
func (w *replicated) await(what string, within time.Duration) {
	w.t.Helper()
	lacks := w.lacks()
	for deadline := time.Now().Add(within); lacks != ""; lacks = w.lacks() {
		if time.Now().After(deadline) {
			w.keepLogs()
			w.t.Fatalf("%s: not within %s: %s", what, within, lacks)
		}
		kit.Pause(100 * time.Millisecond)
	}
}

// lacks says what is not replicated as it should be, "" if everything is.
func (w *replicated) lacks() string {
	for _, ask := range []func() string{w.etcdLacks, w.postgresLacks, w.queuesLack, w.sessionsLack, w.natsLacks} {
		if lacks := ask(); lacks != "" {
			return lacks
		}
	}
	return ""
}

// get returns what a server answers with 200.
func get(url string) (string, error) {
	response, err := (&http.Client{Timeout: askWithin}).Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return string(text), err
}

func (w *replicated) etcdLacks() string {
	for _, m := range w.machines {
		if text, err := get("http://" + m.at(etcdPort) + "/health"); err != nil || !strings.Contains(text, `"true"`) {
			return fmt.Sprintf("etcd of %s says %s %v", m.name, text, err)
		}
	}
	return ""
}

// primary is the machine of Postgres' primary, and whether the other one has its
// synchronous standby.
func (w *replicated) primary() (primary *machine, standby bool) {
	for _, m := range w.machines[:2] {
		if _, err := get("http://" + m.at(patroniPort) + "/primary"); err == nil {
			primary = m
		} else if _, err := get("http://" + m.at(patroniPort) + "/synchronous"); err == nil {
			standby = true
		}
	}
	return primary, standby
}

// postgresLacks also does what an operator does with a standby that does not find back: it
// has Patroni make it anew.
func (w *replicated) postgresLacks() string {
	primary, standby := w.primary()
	if primary != nil && standby {
		w.alone = time.Time{}
		return ""
	}
	if w.alone.IsZero() {
		w.alone = time.Now()
	}
	if primary != nil && time.Since(w.alone) > standbyWithin {
		for _, m := range w.machines[:2] {
			if m != primary {
				say("the standby on %s did not find back within %s, so Patroni makes it anew", m.name, standbyWithin)
				response, err := http.Post("http://"+m.at(patroniPort)+"/reinitialize", "application/json", strings.NewReader(`{"force":true}`))
				if err != nil {
					return err.Error()
				}
				_ = response.Body.Close()
			}
		}
		w.alone = time.Now()
		w.remade++
	}
	return fmt.Sprintf("Postgres has a primary: %t, a synchronous standby: %t", primary != nil, standby)
}

// queuesLack also brings each primary back to its first machine: if one machine had two of
// three, its end would be the end of the cluster.
func (w *replicated) queuesLack() string {
	ctx := context.Background()
	for _, port := range []int{queuePort, replicaPort} {
		for _, m := range w.machines {
			node := w.nodes[m.at(port)]
			info, err := node.Info(ctx, "replication").Result()
			if err != nil {
				return err.Error()
			}
			primary := strings.Contains(info, "role:master")
			if port == queuePort && !primary && strings.Contains(info, "master_link_status:up") {
				if err := node.ClusterFailover(ctx).Err(); err != nil {
					return err.Error()
				}
			}
			if primary != (port == queuePort) || primary && !strings.Contains(info, "state=online") || !primary && !strings.Contains(info, "master_link_status:up") {
				return "Redis at " + m.at(port) + " is replicated so: " + info
			}
			if state, err := node.ClusterInfo(ctx).Result(); err != nil || !strings.Contains(state, "cluster_state:ok") {
				return fmt.Sprint("the cluster of Redis at ", m.at(port), ": ", state, err)
			}
		}
	}
	return ""
}

// sessionPrimary is the machine with the Redis that takes sessions.
func (w *replicated) sessionPrimary() (*machine, error) {
	var primary *machine
	for _, m := range w.machines[:2] {
		info, err := w.nodes[m.at(sessionPort)].Info(context.Background(), "replication").Result()
		if err != nil {
			return nil, err
		}
		if strings.Contains(info, "role:master") && strings.Contains(info, "state=online") {
			primary = m
		}
	}
	if primary == nil {
		return nil, errors.New("the Redis of sessions has no replica")
	}
	return primary, nil
}

func (w *replicated) sessionsLack() string {
	if _, err := w.sessionPrimary(); err != nil {
		return err.Error()
	}
	return ""
}

// streams returns what the broker knows about all streams.
func (w *replicated) streams() (list []*jetstream.StreamInfo, err error) {
	err = w.withBroker(func(ctx context.Context, conn *natsgo.Conn) error {
		js, err := jetstream.New(conn)
		if err != nil {
			return err
		}
		all := js.ListStreams(ctx)
		for info := range all.Info() {
			list = append(list, info)
		}
		return all.Err()
	})
	return list, err
}

func (w *replicated) withBroker(do func(ctx context.Context, conn *natsgo.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*askWithin)
	defer cancel()
	conn, err := natsgo.Connect(w.brokers("miniserver"), natsgo.Timeout(askWithin))
	if err != nil {
		return err
	}
	defer conn.Close()
	return do(ctx, conn)
}

// natsLacks also does what an operator does with a stream that has had a replica behind for
// long: it has another one lead it. After a partition, a leader and a replica may wait for
// each other without end (nats-server 2.15.2: "snapshot can not be installed while catchups
// running" and "Expected first catchup entry to be a snapshot").
func (w *replicated) natsLacks() (lacks string) {
	streams, err := w.streams()
	if err != nil {
		return "NATS: " + err.Error()
	}
	for _, info := range streams {
		name := info.Config.Name
		if info.Cluster == nil || info.Cluster.Leader == "" || len(info.Cluster.Replicas) != 2 {
			lacks = "stream " + name + " has no leader or not two replicas"
			continue
		}
		late := slices.IndexFunc(info.Cluster.Replicas, func(peer *jetstream.PeerInfo) bool { return !peer.Current || peer.Offline })
		if late < 0 {
			delete(w.behind, name)
			continue
		}
		lacks = fmt.Sprintf("stream %s of leader %s is %d behind at %s", name, info.Cluster.Leader, info.Cluster.Replicas[late].Lag, info.Cluster.Replicas[late].Name)
		if w.behind[name].IsZero() {
			w.behind[name] = time.Now()
		}
		if time.Since(w.behind[name]) > behindFor && w.leadAnew(name) == nil {
			delete(w.behind, name)
			w.ledAnew++
		}
	}
	return lacks
}

// leadAnew has another replica of a stream lead it.
func (w *replicated) leadAnew(stream string) error {
	return w.withBroker(func(ctx context.Context, conn *natsgo.Conn) error {
		said, err := conn.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil)
		if err == nil && !strings.Contains(string(said.Data), `"success":true`) {
			err = errors.New(string(said.Data))
		}
		return err
	})
}
