package matchmaking_test

import (
	"reflect"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/test/kit"
)

// The fixed server of all matches is configured as host and port, and nothing else.
func TestFixedServer(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]matchmaking.Session{
		"arena.example:7203": {Server: "fixed", Address: "arena.example", Ports: []matchmaking.Port{{Name: "game", Port: 7203}}},
		"[2001:db8::1]:1":    {Server: "fixed", Address: "2001:db8::1", Ports: []matchmaking.Port{{Name: "game", Port: 1}}},
		"203.0.113.7:65535":  {Server: "fixed", Address: "203.0.113.7", Ports: []matchmaking.Port{{Name: "game", Port: 65535}}},
	} {
		server, err := matchmaking.NewFixedServer(address)
		kit.Must(t, err)
		for _, match := range []string{"m_1", "m_2"} {
			if got, err := server.Allocate(t.Context(), matchmaking.Match{ID: match}); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: allocated %+v, %v; want %+v", address, got, err, want)
			}
		}
	}
	for _, address := range []string{"", "arena", "arena:", ":7203", "arena:0", "arena:65536", "arena:-1", "arena:game", "arena:7203:1", "2001:db8::1:7203", "http://arena:7203"} {
		if _, err := matchmaking.NewFixedServer(address); err == nil {
			t.Errorf("%q is accepted as an address", address)
		}
	}
}
