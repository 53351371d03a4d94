package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
)

const (
	slow       = 500 // clients that hardly read or write
	opening    = time.Second / 250
	hold       = 2000
	lot        = 1_000_000 // tickets
	mostSlower = 2.0       // others' p99, beside that without the abuse
)

// abuse is a misuse of the system by many clients at once. do is called again and again,
// for each client, until ctx ends; every is the time between the calls of all clients
// together. What the server refuses is no error.
type abuse struct {
	name    string
	clients int
	every   time.Duration
	do      func(ctx context.Context, client int)
}

// abuse measures what others notice of those who misuse the system: how long their grants
// and overviews take at a steady 50 a second, by turns alone and beside each misuse, and
// how much memory the process needs meanwhile.
func (b *bench) abuse(ctx context.Context) error {
	issuer, err := b.tokenIssuer()
	if err != nil {
		return err
	}
	s, players, err := b.door(ctx, "abuse", issuer, playerCount, "MATCHMAKING_QUEUE_LIMIT=2000000")
	if err != nil {
		return err
	}
	token, err := issuer.token("bench-shop", "purchase-service", auth.RoleEntitlementWriter)
	if err != nil {
		return err
	}
	others := b.others(s, token, players)
	if _, err := others(ctx); err != nil { // to warm up
		return err
	}
	for _, a := range b.abuses(s, token, players) {
		if err := b.alongside(ctx, s, a, others); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return b.manyTickets(ctx, s, others)
}

// asked is how many grants and overviews others send in one measurement.
func (b *bench) asked() int { return int(b.sizes.paced.Seconds() * pacedPerSecond) }

// others returns what measures grants and overviews, each by turns. A request that is refused
// because the process is overloaded has no time: it is missing in the result.
func (b *bench) others(s *system, token string, players []player) func(context.Context) ([]time.Duration, error) {
	asks := overviews(s, players, byBearer)
	return func(ctx context.Context) ([]time.Duration, error) {
		took := make([]time.Duration, b.asked())
		err := b.steadily(ctx, s, token, len(took), func(c *client, n int) (err error) {
			began := time.Now()
			if n%2 == 0 {
				err = c.grant(randomUser(), randomKey())
			} else {
				err = c.ask(asks[n/2%len(asks)])
			}
			var other *unexpected
			if errors.As(err, &other) && strings.Contains(other.body, `"overloaded"`) {
				return nil
			}
			took[n] = time.Since(began)
			return err
		})
		return slices.DeleteFunc(took, func(d time.Duration) bool { return d == 0 }), err
	}
}

// alongside measures others alone and beside an abuse, by turns.
func (b *bench) alongside(ctx context.Context, s *system, a abuse, others func(context.Context) ([]time.Duration, error)) error {
	var alone, meanwhile []time.Duration
	var did int64
	var quiet, most float64
	for range b.sizes.rounds {
		took, memory, err := s.remembering(func() ([]time.Duration, error) { return others(ctx) })
		if err != nil {
			return err
		}
		alone, quiet = append(alone, took...), max(quiet, memory)
		abusing, end := context.WithCancel(ctx)
		done := a.begin(abusing)
		took, memory, err = s.remembering(func() ([]time.Duration, error) { return others(ctx) })
		end()
		did += done()
		if err != nil {
			return err
		}
		meanwhile, most = append(meanwhile, took...), max(most, memory)
	}
	return b.compare(fmt.Sprintf("%s (%d in %.0f s)", a.name, did, float64(b.sizes.rounds)*b.sizes.paced.Seconds()), meanwhile, alone, most, quiet)
}

// compare fails if a request was refused that was sent alone.
func (b *bench) compare(name string, meanwhile, alone []time.Duration, most, quiet float64) error {
	asked := b.sizes.rounds * b.asked()
	if len(alone) < asked {
		return fmt.Errorf("%d of %d requests were refused although nothing else was asked", asked-len(alone), asked)
	}
	p, without := percentile(meanwhile, 0.99), percentile(alone, 0.99)
	ratio := float64(p) / float64(without)
	b.row("others' grants and overviews beside "+name+", p99", ms(p), "alone: "+ms(without), judged(ratio, ratio <= mostSlower), fmt.Sprintf("≤ %.2f", mostSlower))
	b.row("memory meanwhile, peak", fmt.Sprintf("%.0f MiB", most), fmt.Sprintf("alone: %.0f MiB", quiet), judged(most/quiet, true), "–")
	if refused := asked - len(meanwhile); refused > 0 {
		b.row("others refused meanwhile, 503 overloaded", fmt.Sprint(refused), fmt.Sprintf("beside %d answered", len(meanwhile)), "–", "–")
	}
	return nil
}

// remembering also returns the most memory that the process had while do ran, in MiB.
func (s *system) remembering(do func() ([]time.Duration, error)) (took []time.Duration, memory float64, err error) {
	const forgetPeak = "5"
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.process.Pid), []byte(forgetPeak), 0o200); err != nil {
		return nil, 0, err
	}
	took, err = do()
	memory, memoryErr := memoryOf(s.process.Pid, peakMemory)
	return took, memory, errors.Join(err, memoryErr)
}

// begin lets all clients do it until ctx ends. done waits for them, and returns how often
// they did.
func (a abuse) begin(ctx context.Context) (done func() int64) {
	var n atomic.Int64
	var group sync.WaitGroup
	for client := range a.clients {
		group.Go(func() {
			wait(ctx, a.every*time.Duration(client)) // all at once would be another abuse
			pace := time.NewTicker(max(a.every*time.Duration(a.clients), time.Millisecond))
			defer pace.Stop()
			for ctx.Err() == nil {
				n.Add(1)
				a.do(ctx, client)
				select {
				case <-ctx.Done():
				case <-pace.C:
				}
			}
		})
	}
	return func() int64 { group.Wait(); return n.Load() }
}

func (b *bench) abuses(s *system, token string, players []player) []abuse {
	const anotherSecond = time.Second
	grant := "POST /v1/entitlements/grants HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer " + token + "\r\nContent-Type: application/json\r\nIdempotency-Key: "
	// slowly sends start, and then one byte a second, until the server has had enough.
	slowly := func(start string) func(context.Context, int) {
		return func(ctx context.Context, _ int) {
			s.connected(ctx, func(conn net.Conn) {
				_, err := conn.Write([]byte(start))
				for err == nil && ctx.Err() == nil {
					if _, err = conn.Write([]byte("x")); err == nil {
						wait(ctx, anotherSecond)
					}
				}
			})
		}
	}
	// unread asks for path a number of times at once, and reads no answer.
	unread := func(path string, times int) func(context.Context, int) {
		return func(ctx context.Context, n int) {
			s.connected(ctx, func(conn net.Conn) {
				ask := newAsk(s.address, path, players[n%len(players)].bearer, "").request
				if _, err := conn.Write([]byte(strings.Repeat(string(ask), times))); err == nil {
					wait(ctx, requestTimeout)
				}
			})
		}
	}
	// asking sends requests over one connection for each client.
	asking := func(clients int, request func() string) func(context.Context, int) {
		open := make([]*client, clients)
		return func(ctx context.Context, n int) {
			var err error
			if open[n] == nil {
				if open[n], err = dial(ctx, s.address, token); err != nil {
					return
				}
			}
			var refused *unexpected
			if err := open[n].send([]byte(request())); err != nil && !errors.As(err, &refused) {
				open[n].close()
				open[n] = nil
			}
		}
	}
	wrong := func(end string) string {
		return "GET /v1/me HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer " + token[:len(token)-8] + end + "\r\n\r\n"
	}
	var tokens atomic.Int64
	grants := func(user, key func() string) func() string {
		return func() string {
			k := key()
			b := fmt.Sprintf(`{"user_id":%q,"stock_keeping_unit":"item1","reason":"purchase","purchase_id":%q}`, user(), k)
			return grant + k + fmt.Sprintf("\r\nContent-Length: %d\r\n\r\n%s", len(b), b)
		}
	}
	always := func(text string) func() string { return func() string { return text } }
	return []abuse{
		{"bodies of one byte a second", slow, opening, slowly(grant + "1\r\nContent-Length: 10000\r\n\r\n")},
		{"headers of one byte a second", slow, opening, slowly("GET /v1/me HTTP/1.1\r\nHost: bench\r\nX-Header: ")},
		{"streams that nobody reads", slow, opening, unread(streamPath, 1)},
		{"documents of 300 kB that nobody reads, 20 on each connection", slow, opening, unread("/openapi.json", 20)},
		{"overviews that nobody reads, 100 on each connection", slow, opening, unread("/v1/me/overview", 100)},
		{"connections that send nothing", hold, time.Second / 1000, func(ctx context.Context, _ int) {
			s.connected(ctx, func(net.Conn) { wait(ctx, requestTimeout) })
		}},
		{"connections that come and go, 2,000 a second", 8, time.Second / 2000, func(ctx context.Context, _ int) {
			s.connected(ctx, func(net.Conn) {})
		}},
		{"wrong tokens, 5,000 a second", 16, time.Second / 5000, asking(16, func() string { return wrong(fmt.Sprintf("%08d", tokens.Add(1))) })},
		{"one wrong token, 5,000 a second", 16, time.Second / 5000, asking(16, func() string { return wrong("AAAAAAAA") })},
		{"no misuse: a path that leads nowhere, 5,000 a second", 16, time.Second / 5000, asking(16, func() string { return "GET /nowhere HTTP/1.1\r\nHost: bench\r\n\r\n" })},
		{"headers of 1 MB, 100 a second", 16, time.Second / 100, func(ctx context.Context, _ int) {
			s.connected(ctx, func(conn net.Conn) {
				_, err := conn.Write([]byte("GET /v1/me HTTP/1.1\r\nHost: bench\r\nX-Header: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"))
				if err == nil {
					_, _ = bufio.NewReader(conn).ReadString('\n')
				}
			})
		}},
		{"grants with one key, 500 a second", 16, time.Second / 500, asking(16, grants(always("somebody"), always("always-the-same")))},
		{"grants of one item to one user, 500 a second", 16, time.Second / 500, asking(16, grants(always("somebody"), randomKey))},
		{"no misuse: grants to as many users, 500 a second", 16, time.Second / 500, asking(16, grants(randomUser, randomKey))},
	}
}

// manyTickets fills a queue with players who fit nobody, each in a region of its own, and
// whose windows widen.
func (b *bench) manyTickets(ctx context.Context, s *system, others func(context.Context) ([]time.Duration, error)) error {
	n := min(lot, b.sizes.loaded)
	q, err := b.queuesAt(s.redis.URL())
	if err != nil {
		return err
	}
	var took [2][]time.Duration
	var memory, used [2]float64
	for i, filled := range []int{0, n} {
		b.progress("  %d players join", filled)
		if err := q.holding(filled).fill(ctx, rank, filled, func(n int) (a, b string) { return attributesOf(2*n, 0), attributesOf(2*n+1, 0) }); err != nil {
			return err
		}
		for range b.sizes.rounds {
			more, most, err := s.remembering(func() ([]time.Duration, error) { return others(ctx) })
			if err != nil {
				return err
			}
			took[i], memory[i] = append(took[i], more...), max(memory[i], most)
		}
		states, err := q.States(ctx)
		if err != nil {
			return err
		}
		for _, state := range states {
			if state.Mode == rank && state.Waiting != filled {
				return fmt.Errorf("%d of %d tickets still wait", state.Waiting, filled)
			}
		}
		if used[i], err = q.info(ctx, "memory", "used_memory:"); err != nil {
			return err
		}
	}
	if err := b.compare(fmt.Sprintf("%d waiting tickets", n), took[1], took[0], memory[1], memory[0]); err != nil {
		return err
	}
	b.row(fmt.Sprintf("memory of Redis for %d waiting tickets", n), fmt.Sprintf("%.0f MiB", used[1]/(1<<20)), fmt.Sprintf("before: %.0f MiB", used[0]/(1<<20)), "–", "–")
	return nil
}

// connected calls do with a new connection of small buffers, which ends with ctx, and
// closes it without a trace.
func (s *system) connected(ctx context.Context, do func(net.Conn)) {
	conn, err := (&net.Dialer{Timeout: requestTimeout}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return // the server refuses it
	}
	defer conn.Close()
	tcp := conn.(*net.TCPConn)
	if errors.Join(tcp.SetReadBuffer(4<<10), tcp.SetLinger(0)) != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	do(conn)
}

// wait waits, but not after the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
