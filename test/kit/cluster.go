package kit

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redisserver "github.com/miniserversystem/miniserver/infra/dev/redis"
)

const (
	clusterNodes = 3
	clusterSlots = 16384
	// clusterWithin bounds how long the nodes may take to find each other.
	clusterWithin = 30 * time.Second
)

// RedisCluster starts a Redis Cluster of three masters for this test and returns the URL
// of one, from which a cluster client finds the others. It is stopped when the test ends.
func RedisCluster(t testing.TB) string {
	t.Helper()
	server.once.Do(start)
	if server.err != nil {
		t.Fatal(server.err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), sqlTimeout)
	defer cancel()
	dir := t.TempDir()
	var nodes []*redis.Client
	var url string
	for i := range clusterNodes {
		node, err := redisserver.Start(ctx, redisserver.Options{
			Dir: filepath.Join(dir, strconv.Itoa(i)), Binaries: server.binaries, Cluster: true, Password: "cluster-of-a-test",
		})
		if err != nil {
			t.Fatal(err)
		}
		stopAfter(t, node)
		options, err := redis.ParseURL(node.URL())
		if err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(options)
		defer client.Close()
		nodes, url = append(nodes, client), node.URL()
		first, last := clusterSlots*i/clusterNodes, clusterSlots*(i+1)/clusterNodes-1
		Must(t, client.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", first, last).Err())
		Must(t, client.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		port, bus := node.Ports()
		if i > 0 {
			Must(t, nodes[0].Do(ctx, "CLUSTER", "MEET", "127.0.0.1", port, bus).Err())
		}
	}
	Within(t, clusterWithin, "the nodes of the cluster know each other", func() bool { return formed(ctx, nodes) })
	return url
}

// formed reports whether every node knows all nodes and all slots.
func formed(ctx context.Context, nodes []*redis.Client) bool {
	for _, node := range nodes {
		info, err := node.ClusterInfo(ctx).Result()
		if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(clusterNodes)) {
			return false
		}
	}
	return true
}
