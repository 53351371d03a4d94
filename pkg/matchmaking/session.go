package matchmaking

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"
)

// Match is a pair of players.
type Match struct {
	ID        string    // m_…; the same UUID as EventID
	EventID   string    // of the match's event
	Mode      string    // the queue
	MatchedAt time.Time // by the clock of Redis
	// Players are both players, the one who waited longer first.
	Players [2]Player
}

// Player is one of a match.
type Player struct {
	UserID   string `json:"user_id"`
	TicketID string `json:"ticket_id"`
}

// Session is where the players of a match meet.
type Session struct {
	Server  string `json:"server" doc:"The game server's name." example:"arena-x7k2p-9dlqz"`
	Address string `json:"address" doc:"Its host name or IP address." example:"203.0.113.7"`
	Ports   []Port `json:"ports" nullable:"false" doc:"Where it listens."`
}

// Port is one port of a game server.
type Port struct {
	Name string `json:"name" example:"game"`
	Port int32  `json:"port" example:"7203"`
}

// ErrNoServer is an Allocator's answer while no game server is free.
var ErrNoServer = errors.New("no game server is free")

// Allocator allocates the game server of a match.
type Allocator interface {
	// Allocate returns the match's session. It is called again for the same match
	// after a failure or a crash, and must then return the server of the earlier call.
	// Its error wraps ErrNoServer when no server is free; every error is retried for a
	// while.
	Allocate(context.Context, Match) (Session, error)
}

// FixedServer is an Allocator for one game server that hosts every match and
// distinguishes them by match_id, for development and small games.
type FixedServer struct{ session Session }

var _ Allocator = FixedServer{}

// NewFixedServer returns the allocator of the game server at address (host:port).
func NewFixedServer(address string) (FixedServer, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return FixedServer{}, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || host == "" || port == 0 {
		return FixedServer{}, errors.New("a game server's address is host:port, not " + strconv.Quote(address))
	}
	return FixedServer{Session{Server: "fixed", Address: host, Ports: []Port{{"game", int32(port)}}}}, nil
}

// Allocate returns the one server.
func (f FixedServer) Allocate(context.Context, Match) (Session, error) { return f.session, nil }
