package process_test

import (
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/process"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

const nobody = "127.0.0.1:1"

func clientOf(t *testing.T, address string, cluster bool) redis.UniversalClient {
	t.Helper()
	p := process.New(settings.Settings{RedisURL: address, RedisCluster: cluster}, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { p.Close() })
	client, err := p.Redis()
	kit.Must(t, err)
	return client
}

// A URL with a master_name is that of Sentinels, of which one is away here.
func TestRedisBehindSentinels(t *testing.T) {
	t.Parallel()
	primary, err := url.Parse(kit.Redis(t).URL())
	kit.Must(t, err)
	password, _ := primary.User.Password()
	port, err := proc.FreePort(0)
	kit.Must(t, err)
	dir := t.TempDir()
	config := filepath.Join(dir, "sentinel.conf")
	kit.Must(t, os.WriteFile(config, fmt.Appendf(nil, "bind 127.0.0.1\nport %d\ndir %s\nprotected-mode no\nsentinel monitor queues %s %s 1\nsentinel auth-pass queues %s\n",
		port, dir, primary.Hostname(), primary.Port(), password), 0o600))
	root, err := kit.Root()
	kit.Must(t, err)
	programs, err := apt.Ensure(t.Context(), filepath.Join(root, ".local", "deps"), os.Stderr)
	kit.Must(t, err)
	command := exec.Command(programs.RedisServer, config, "--sentinel")
	command.Env = proc.Environment(programs.RedisLibraries)
	sentinel, err := proc.Server{Command: command, Log: filepath.Join(dir, "log"), Ready: proc.Accepts(port), Within: time.Minute}.Start(t.Context())
	kit.Must(t, err)
	t.Cleanup(func() { kit.Must(t, sentinel.End()) })

	client := clientOf(t, fmt.Sprintf("redis://%s?master_name=queues&password=%s&addr=%s", nobody, password, proc.Address(port)), false)
	kit.Eventually(t, "the client has found the primary", func() bool { return client.Set(t.Context(), "a", "b", 0).Err() == nil })
}

// Replicas may not have yet what was written, so no setting leads to them.
func TestNothingIsReadFromReplicas(t *testing.T) {
	t.Parallel()
	const query = "route_by_latency=true&route_randomly=true"
	cluster := clientOf(t, "redis://h:1?read_only=true&"+query, true).(*redis.ClusterClient).Options()
	if cluster.ReadOnly || cluster.RouteByLatency || cluster.RouteRandomly {
		t.Errorf("a cluster's replicas are read: %+v", cluster)
	}
	clientOf(t, "redis://h:1?master_name=m&replica_only=true&"+query, false) // or it panics
}

// A cluster is found through a further node where the first one is away. The client looks
// again every second which node has which slots: one that died tells nobody.
func TestRedisClusterThroughAFurtherNode(t *testing.T) {
	t.Parallel()
	node, err := url.Parse(kit.RedisCluster(t))
	kit.Must(t, err)
	address := node.Host
	node.Host, node.Path, node.RawQuery = nobody, "", "addr="+address
	client := clientOf(t, node.String(), true)
	kit.Must(t, client.Set(t.Context(), "a", "b", 0).Err())
	if every := client.(*redis.ClusterClient).Options().ClusterStateReloadInterval; every > time.Second {
		t.Errorf("the client looks every %s which node has which slots, want every second", every)
	}
}

func TestBadRedisURLShowsNoPassword(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"http://u:hunter2@h", "redis://u:hunter2@h/x", "redis://u:hunter2@h?master_name=m&what=x"} {
		for _, cluster := range []bool{false, true} {
			p := process.New(settings.Settings{RedisURL: bad, RedisCluster: cluster}, slog.New(slog.DiscardHandler))
			if _, err := p.Redis(); err == nil && !(cluster && strings.HasSuffix(bad, "/x")) || err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s as a cluster %t: %v, want an error without the password", bad, cluster, err)
			}
			p.Close()
		}
	}
}
