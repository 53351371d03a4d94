package matchmaking_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// killRedis kills Redis as the kernel would, and restarts it with what it had written.
// With appendfsync everysec that is all that it has answered, unless the disk is holding
// up an fsync; that case is not tested here.
func killRedis(s *system.System, client *redis.Client) {
	s.T.Helper()
	kit.Eventually(s.T, "no fsync is under way", func() bool {
		return strings.Contains(client.Info(context.Background(), "persistence").Val(), "aof_pending_bio_fsync:0")
	})
	kit.Must(s.T, s.Redis.Kill())
	s.Redis = kit.StartRedis(s.T, s.RedisDir)
}

// Redis is killed three times amid joins and passes: answers stay true, and both players
// of every match are notified once.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	s, people := system.StartWithPeople(t, "RECONCILE_AFTER=1ms") // with wakes, as in production
	const players, workers, rounds = 96, 8, 3
	type seen struct {
		token, user, ticketID string
		match, peer           string // as it was answered
	}
	everybody := make([]seen, players)
	system.AtOnce(workers, func(worker int) {
		for i := worker; i < players; i += workers {
			token := people.Patient(t, fmt.Sprint("player", i))
			everybody[i] = seen{token: token, user: s.UserID(token)}
		}
	})
	client := s.QueueClient()
	defer client.Close()
	var mutex sync.Mutex
	matched, failed := 0, 0
	progress := func() int { mutex.Lock(); defer mutex.Unlock(); return matched }
	done := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { // the schedule
		for {
			for _, function := range []string{"match", "announce", "notify", "deliver"} {
				s.TryTick(function)
			}
			select {
			case <-done:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	})
	stop := sync.OnceFunc(func() { close(done); background.Wait() })
	defer stop()
	var next atomic.Int64 // not fixed shares: the last two players could fall to one worker
	var asking sync.WaitGroup
	asking.Go(func() {
		system.AtOnce(workers, func(int) {
			for i := next.Add(1) - 1; i < players; i = next.Add(1) - 1 {
				p := &everybody[i]
				deadline := time.Now().Add(kit.Patience)
				for p.match == "" {
					if time.Now().After(deadline) {
						t.Errorf("%s is not matched", p.user)
						return
					}
					var a system.Answer
					if p.ticketID == "" {
						a = s.JoinWith(p.token, "casual", "k1", `{}`)
					} else {
						a = s.Call(http.MethodGet, system.TicketPath(p.ticketID), p.token, "")
					}
					switch got := a.JSON(t); {
					// A repeated join counts against the limit, which a Redis that starts
					// slowly may exhaust.
					case a.Status == http.StatusServiceUnavailable || a.Status == http.StatusTooManyRequests:
						mutex.Lock()
						failed++
						mutex.Unlock()
						kit.Pause(20 * time.Millisecond)
					case a.Status == http.StatusCreated:
						p.ticketID = got["ticket_id"].(string)
					case a.Status != http.StatusOK:
						t.Errorf("%s: answered %d %s", p.user, a.Status, a.Body)
						return
					case got["status"] == "MATCHED":
						p.match, p.peer = got["match_id"].(string), got["peer_user_ids"].([]any)[0].(string)
						mutex.Lock()
						matched++
						mutex.Unlock()
					default:
						kit.Pause(10 * time.Millisecond) // between looks, as a client would
					}
				}
			}
		})
	})
	for round := range rounds {
		kit.Eventually(t, "some are matched", func() bool { return progress() >= (round+1)*players/(rounds+2) })
		killRedis(s, client)
	}
	asking.Wait()
	t.Logf("%d matched, %d times 503 or 429", matched, failed)
	kit.Eventually(t, "all are notified", func() bool {
		leasesPass(s, client)
		return s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`) >= players
	})
	stop()
	wantWhole(s)
	byUser := map[string]seen{}
	for _, p := range everybody {
		byUser[p.user] = p
	}
	for _, p := range everybody {
		if peer := byUser[p.peer]; peer.peer != p.user || peer.match != p.match {
			t.Errorf("%s was answered %s with %s, who was answered %s with %s", p.user, p.match, p.peer, peer.match, peer.peer)
		}
		now := s.ReadTicket(p.token, p.ticketID)
		if now["status"] != "MATCHED" || now["match_id"] != p.match || now["session"] == nil {
			t.Errorf("%s was answered %s, and the ticket is %v", p.user, p.match, now)
		}
		wantNotified(s, [2]string{p.user, p.peer})
		if n := s.Count(`SELECT count(*) FROM notification.notifications WHERE user_id = $1 AND payload->>'match_id' = $2 AND payload->>'ticket_id' = $3`, p.user, p.match, p.ticketID); n != 1 {
			t.Errorf("%s is notified %d times of %s, want once", p.user, n, p.match)
		}
	}
	if n := s.Count(`SELECT count(*) FROM notification.notifications`); n != players {
		t.Errorf("%d notifications for %d players", n, players)
	}
	// All have arrived: no entry is kept, and nobody is notified again.
	kit.Eventually(t, "the stream is empty", func() bool { s.TryTick("reconcile"); return waitingEntries(client) == 0 })
	matchAll(s)
	if n := s.Count(`SELECT count(*) FROM notification.notifications`); n != players {
		t.Errorf("%d notifications for %d players", n, players)
	}
}
