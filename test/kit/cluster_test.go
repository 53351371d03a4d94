package kit_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(servingDir); dir != "" {
		fmt.Fprintln(os.Stderr, serveEverything(dir))
		os.Exit(1)
	}
	os.Exit(kit.Main(m))
}

// The cluster is real: keys are on all nodes, and a script is confined to one slot.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	options, err := redis.ParseURL(kit.RedisCluster(t))
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{options.Addr}, Password: options.Password})
	defer client.Close()
	for i := range 300 {
		if err := client.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	sizes := map[string]int64{}
	for i := range 300 {
		node, err := client.MasterForKey(t.Context(), fmt.Sprint("key", i))
		if err != nil {
			t.Fatal(err)
		}
		sizes[node.Options().Addr]++
	}
	if len(sizes) != 3 {
		t.Errorf("keys are on %v, want all three nodes", sizes)
	}
	both := redis.NewScript(`redis.call('SET', KEYS[1], 1) return redis.call('GET', KEYS[2])`)
	if err := both.Run(t.Context(), client, []string{"a:{x}", "b:{x}"}).Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("a script in one slot: %v", err)
	}
	if err := both.Run(t.Context(), client, []string{"a", "b"}).Err(); err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
		t.Errorf("a script in two slots: %v, want CROSSSLOT", err)
	}
}
