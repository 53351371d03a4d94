package matchmaking_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	redisserver "github.com/miniserversystem/miniserver/infra/dev/redis"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Two players join a queue, a pass finds that they fit, and both read with whom they
// play.
func Example() {
	ctx := context.Background()
	client, stop, err := exampleRedis(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	store := matchmaking.NewStore(client, matchmaking.Rules{
		Modes: []matchmaking.Mode{{Name: "rank", Ranked: true, Agree: []string{"region"}}},
		TTL:   2 * time.Minute, Windows: []int{100, 200, 400}, WidenEvery: 5 * time.Second, QueueLimit: 100_000,
	})

	join := func(user string, skill string) string {
		attributes, err := matchmaking.ParseAttributes(map[string]json.RawMessage{"skill": json.RawMessage(skill), "region": json.RawMessage(`"eu"`)})
		if err != nil {
			fmt.Println(err)
		}
		// The key makes it safe to send the request again.
		joined, _, err := store.Join(ctx, matchmaking.Join{UserID: user, Mode: "rank", Key: "evening", Attributes: attributes})
		if err != nil {
			fmt.Println(err)
		}
		return joined.TicketID
	}
	read := func(user, ticketID string) {
		ticket, err := store.Get(ctx, user, ticketID)
		switch {
		case err != nil:
			fmt.Println(err)
		case ticket.Made != nil:
			fmt.Println(user, ticket.Status, "with", ticket.PeerUserIDs)
		default:
			fmt.Println(user, ticket.Status, "as number", ticket.Position, "-", ticket.Reason.Code)
		}
	}

	alice := join("alice", "1500")
	read("alice", alice)
	bob := join("bob", "1580")
	pass, err := store.Match(ctx, "rank", 10)
	fmt.Println(len(pass.Matches), "match,", pass.Depth, "wait,", err)
	read("alice", alice)
	read("bob", bob)
	// Output:
	// alice QUEUED as number 1 - alone
	// 1 match, 0 wait, <nil>
	// alice MATCHED with [bob]
	// bob MATCHED with [alice]
}

// exampleRedis is a Redis without a test that it belongs to.
func exampleRedis(ctx context.Context) (client *redis.Client, stop func(), err error) {
	root, err := kit.Root()
	if err != nil {
		return nil, nil, err
	}
	binaries, err := apt.Ensure(ctx, filepath.Join(root, ".local", "deps"), os.Stderr)
	if err != nil {
		return nil, nil, err
	}
	dir, err := os.MkdirTemp("", "matchmaking")
	if err != nil {
		return nil, nil, err
	}
	server, err := redisserver.Start(ctx, redisserver.Options{Dir: dir, Binaries: binaries})
	if err != nil {
		return nil, nil, err
	}
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		return nil, nil, err
	}
	client = redis.NewClient(options)
	return client, func() {
		_ = client.Close()
		_ = server.Stop()
		_ = os.RemoveAll(dir)
	}, nil
}
