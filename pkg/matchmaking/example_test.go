package matchmaking_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// Two players join a queue, a pass finds that they fit, and each reads the other's name in
// their ticket.
func Example() {
	t := kit.ForExample()
	defer t.End()
	ctx := t.Context()
	store := matchmaking.NewStore(clientOf(t, kit.Redis(t).URL()), matchmaking.Rules{
		Modes: []matchmaking.Mode{{Name: "rank", Ranked: true, Agree: []string{"region"}}},
		TTL:   2 * time.Minute, Windows: []int{100, 200, 400}, WidenEvery: 5 * time.Second, QueueLimit: 100_000,
	})

	join := func(user string, skill string) string {
		attributes, err := matchmaking.ParseAttributes(map[string]json.RawMessage{"skill": json.RawMessage(skill), "region": json.RawMessage(`"eu"`)})
		kit.Must(t, err)
		// The key makes it safe to send the request again.
		joined, _, err := store.Join(ctx, matchmaking.Join{UserID: user, Mode: "rank", Key: "evening", Attributes: attributes})
		kit.Must(t, err)
		return joined.TicketID
	}
	read := func(user, ticketID string) {
		ticket, err := store.Get(ctx, user, ticketID)
		kit.Must(t, err)
		if ticket.Made != nil {
			fmt.Println(user, ticket.Status, "with", ticket.PeerUserIDs)
		} else {
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

// The rule of a queue: attributes in Agree must be the same. If it is Ranked, the skills
// must be near, within a window that widens while a player waits. No two of the players
// that stay QUEUED here are of one region.
func ExampleMode() {
	t := kit.ForExample()
	defer t.End()
	ctx := t.Context()
	store := matchmaking.NewStore(clientOf(t, kit.Redis(t).URL()), matchmaking.Rules{
		Modes: []matchmaking.Mode{{Name: "rank", Ranked: true, Agree: []string{"region"}}},
		TTL:   2 * time.Minute, Windows: []int{100, 200, 400}, WidenEvery: time.Minute, QueueLimit: 100_000,
	})
	players := []struct{ name, skill, region, ticket string }{
		{name: "alice", skill: "1500", region: "eu"},
		{name: "bob", skill: "1500", region: "us"},
		{name: "carol", skill: "1650", region: "eu"},
		{name: "dave", skill: "1420", region: "eu"},
	}
	for i, player := range players {
		attributes, err := matchmaking.ParseAttributes(map[string]json.RawMessage{
			"skill": json.RawMessage(player.skill), "region": json.RawMessage(`"` + player.region + `"`),
		})
		kit.Must(t, err)
		joined, _, err := store.Join(ctx, matchmaking.Join{UserID: player.name, Mode: "rank", Key: "evening", Attributes: attributes})
		kit.Must(t, err)
		players[i].ticket = joined.TicketID
	}
	_, err := store.Match(ctx, "rank", 10)
	kit.Must(t, err)
	for _, player := range players {
		ticket, err := store.Get(ctx, player.name, player.ticket)
		kit.Must(t, err)
		if ticket.Made != nil {
			fmt.Println(player.name, ticket.Status, "with", ticket.PeerUserIDs)
		} else {
			fmt.Println(player.name, ticket.Status, "-", ticket.Reason.Code)
		}
	}
	// Output:
	// alice MATCHED with [dave]
	// bob QUEUED - nobody_agrees
	// carol QUEUED - nobody_agrees
	// dave MATCHED with [alice]
}
