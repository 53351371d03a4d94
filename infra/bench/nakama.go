package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	nakamaProgram  = "github.com/heroiclabs/nakama/v3"
	nakamaSettings = "Nakama (defaults; matchmaker every second, its shortest)"
	nakamaJoins    = 50 // a second
	// nakamaGrant is what a game on Nakama does where ours grants an item: it stores the item
	// and sends its owner a notification that stays.
	nakamaGrant = `local nk = require("nakama")
nk.register_rpc(function(context, payload)
	local key = nk.uuid_v4()
	nk.storage_write({{ collection = "items", key = key, user_id = context.user_id, value = { item = "item1", reason = "purchase" } }})
	nk.notification_send(context.user_id, "EntitlementGranted", { item = "item1", purchase_id = key }, 1, nil, true)
	return "{}"
end, "grant")
`
)

// games measures ours beside Nakama, each on a database of the same Postgres, by turns.
func (b *bench) games(ctx context.Context) error {
	n, err := b.nakama(ctx)
	if err != nil {
		return err
	}
	issuer, err := b.tokenIssuer()
	if err != nil {
		return err
	}
	if b.token, err = issuer.shop(); err != nil {
		return err
	}
	s, players, err := b.door(ctx, "games", issuer, playerCount)
	if err != nil {
		return err
	}
	reads := []*probe{
		{name: "GET /v1/me, bearer token", address: s.address, pid: s.process.Pid, asks: me(s, players, byBearer)},
		{name: "GET /v2/account", address: n.address, pid: n.pid, asks: n.asks("/v2/account", `"user":`)},
	}
	arms := make([]arm, 0, 4)
	for _, p := range reads {
		if err := p.warm(ctx, b.sizes.front/3); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		arms = append(arms, arm{p.name, p.run(b.sizes.front)})
	}
	arms = append(arms,
		arm{"grants until all are sent", b.grantsUntilSent(s)},
		arm{"Nakama's grants", n.grants(b)})
	m, err := b.rounds(ctx, arms...)
	if err != nil {
		return err
	}
	b.row(fmt.Sprintf("read one's account, %d clients", frontClients), reads[0].text(m[0]), nakamaSettings+": "+reads[1].text(m[1]), judged(m[0]/m[1], m[0] >= m[1]), "≥ 1.00")
	b.atLeast(fmt.Sprintf("grant an item and notify its owner, %d clients, until the last is sent", frontClients), m[2], "Nakama, storage_write and notification_send in an RPC", m[3], 1)
	return b.waitsForMatch(ctx, s, players, n)
}

// grantsUntilSent is an arm: grants whose notifications are all sent in the end.
func (b *bench) grantsUntilSent(s *system) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		return timed(func() (int, error) {
			_, took, err := clocked(ctx, frontClients, b.sizes.window, granter(s.address, b.token))
			if err == nil {
				err = s.drained(ctx)
			}
			return len(took), err
		})
	}
}

// waitsForMatch compares how long players wait who join a plain queue one after another.
func (b *bench) waitsForMatch(ctx context.Context, s *system, players []player, n *nakama) error {
	q, err := b.queuesAt(s.redis.URL())
	if err != nil {
		return err
	}
	count := int(b.sizes.paced.Seconds()*nakamaJoins) / 2 * 2
	var ours, theirs []time.Duration
	for range b.sizes.rounds {
		w, err := arrivals(ctx, s.address, q, players, count, nakamaJoins)
		if err != nil {
			return err
		}
		ours = append(ours, w.took...)
		some, err := n.matches(ctx, count)
		if err != nil {
			return err
		}
		theirs = append(theirs, some...)
	}
	for _, p := range []float64{0.5, 0.99} {
		own, other := percentile(ours, p), percentile(theirs, p)
		ratio := float64(own) / float64(other)
		b.row(fmt.Sprintf("joined → matched, %d joins/s, p%.0f", nakamaJoins, 100*p), ms(own), nakamaSettings+": "+ms(other), judged(ratio, ratio <= 1), "≤ 1.00")
	}
	return nil
}

// nakama is a running Nakama with players who are signed in.
type nakama struct {
	address string
	pid     int
	peers   string   // the program that joins its matchmaker
	tokens  []string // of its players
}

func (b *bench) nakama(ctx context.Context) (*nakama, error) {
	program, peers := filepath.Join(b.dir, "nakama"), filepath.Join(b.dir, "peers")
	if err := build(ctx, peersDir, program, nakamaProgram); err != nil {
		return nil, err
	}
	if err := build(ctx, peersDir, peers, "."); err != nil {
		return nil, err
	}
	database, err := b.emptyDatabase(ctx, "nakama")
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	u.RawQuery = ""
	address := strings.TrimPrefix(u.String(), u.Scheme+"://")
	migrate := exec.CommandContext(ctx, program, "migrate", "up", "--database.address", address)
	if printed, err := migrate.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("nakama migrate up: %w: %s", err, printed)
	}
	data, err := filepath.Abs(filepath.Join(b.dir, "nakama-data"))
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(data, "modules"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(data, "modules", "grant.lua"), []byte(nakamaGrant), 0o644); err != nil {
		return nil, err
	}
	ports := make([]int, 2) // Nakama also listens on the one before each
	for i := range ports {
		if ports[i], err = twoFreePorts(); err != nil {
			return nil, err
		}
	}
	process, err := startLogged(exec.CommandContext(ctx, program,
		"--name", "bench", "--data_dir", data, "--database.address", address, "--logger.level", "ERROR",
		"--socket.address", proc.Loopback, "--socket.port", strconv.Itoa(ports[0]),
		"--console.address", proc.Loopback, "--console.port", strconv.Itoa(ports[1]),
		"--session.token_expiry_sec", "86400", "--matchmaker.interval_sec", "1"),
		filepath.Join(b.dir, "nakama.log"))
	if err != nil {
		return nil, err
	}
	b.onTidy(func() error { return process.End(inOrder) })
	n := &nakama{address: proc.Address(ports[0]), pid: process.Process.Pid, peers: peers}
	if err := answers(ctx, n.address, "/healthcheck", 50*time.Millisecond); err != nil {
		return nil, err
	}
	return n, n.signIn(ctx, max(playerCount, int(b.sizes.paced.Seconds()*nakamaJoins)))
}

// twoFreePorts returns a free port before which is another.
func twoFreePorts() (int, error) {
	for {
		first, err := proc.FreePort(0)
		if err != nil {
			return 0, err
		}
		if second, err := proc.FreePort(first + 1); err != nil || second == first+1 {
			return second, err
		}
	}
}

// signIn makes players by the ids of their devices.
func (n *nakama) signIn(ctx context.Context, count int) error {
	c, err := dial(ctx, n.address, "")
	if err != nil {
		return err
	}
	defer c.close()
	basic := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("defaultkey:")) + "\r\nContent-Type: application/json\r\n"
	for i := range count {
		body, err := c.post("/v2/account/authenticate/device?create=true", basic, fmt.Sprintf(`{"id":"bench-device-%06d"}`, i), 200)
		if err != nil {
			return err
		}
		var answer struct {
			Token string `json:"token"`
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return err
		}
		n.tokens = append(n.tokens, answer.Token)
	}
	return nil
}

// asks are requests of its players.
func (n *nakama) asks(path, want string) []ask {
	asks := make([]ask, playerCount)
	for i := range asks {
		asks[i] = newAsk(n.address, path, "Authorization: Bearer "+n.tokens[i]+"\r\n", want)
	}
	return asks
}

// grants is an arm: players who grant themselves an item by the RPC.
func (n *nakama) grants(b *bench) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		var next atomic.Int64
		return load(ctx, frontClients, b.sizes.window, func(ctx context.Context) (func() error, func(), error) {
			c, err := dial(ctx, n.address, "")
			if err != nil {
				return nil, nil, err
			}
			headers := "Authorization: Bearer " + n.tokens[int(next.Add(1))%playerCount] + "\r\nContent-Type: application/json\r\n"
			return func() error { _, err := c.post("/v2/rpc/grant", headers, `"{}"`, 200); return err }, c.close, nil
		})
	}
}

// matches lets count players join and returns how long each waited.
func (n *nakama) matches(ctx context.Context, count int) ([]time.Duration, error) {
	command := exec.CommandContext(ctx, n.peers, append([]string{"nakama", "paced", n.address, strconv.Itoa(nakamaJoins)}, n.tokens[:count]...)...)
	printed, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("nakama's matchmaker: %w", err)
	}
	return durations(strings.Fields(string(printed)))
}
