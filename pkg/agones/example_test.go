package agones_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/miniserversystem/miniserver/pkg/agones"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

func ExampleAllocator_Allocate() {
	// A stand-in for the allocator service, with one game server. In a cluster, the
	// URL is https and CertFile, KeyFile and CAFile are set.
	cluster := newStandIn(nil)
	defer cluster.Close()
	cluster.fleet("default", "arena", 1)

	allocator, err := agones.New(agones.Options{URL: cluster.URL, Fleet: "arena"})
	if err != nil {
		fmt.Println(err)
		return
	}
	match := func(id string) matchmaking.Match {
		return matchmaking.Match{ID: id, Mode: "casual", Players: [2]matchmaking.Player{{UserID: "u_1"}, {UserID: "u_2"}}}
	}
	first, second := match("m_01h455vb4pex5vsknk084sn02q"), match("m_01h455vb4pex5vsknk084sn02r")

	session, err := allocator.Allocate(context.Background(), first)
	fmt.Println(session, err)
	session, err = allocator.Allocate(context.Background(), first) // after a crash
	fmt.Println(session, err)
	_, err = allocator.Allocate(context.Background(), second)
	fmt.Println(errors.Is(err, matchmaking.ErrNoServer), err)
	// Output:
	// {arena-0 203.0.113.7 [{game 7203} {voice 7204}]} <nil>
	// {arena-0 203.0.113.7 [{game 7203} {voice 7204}]} <nil>
	// true agones: no game server is free (answered 429)
}
