package functions_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/test/kit"
)

// killRedis kills Redis as the kernel would, and brings it back with what it had
// written. With appendfsync everysec it has written what it has answered, unless the
// disk holds up an fsync just then; that is not what is tested here.
func (s *system) killRedis(client *redis.Client) {
	s.t.Helper()
	file, err := os.ReadFile(filepath.Join(s.dir, "redis.pid"))
	must(s.t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(file)))
	must(s.t, err)
	eventually(s.t, queuePatience, "no fsync is under way", func() bool {
		return strings.Contains(client.Info(context.Background(), "persistence").Val(), "aof_pending_bio_fsync:0")
	})
	must(s.t, syscall.Kill(pid, syscall.SIGKILL))
	must(s.t, s.redis.Stop()) // it is gone; this waits for it
	s.redis = kit.StartRedis(s.t, s.dir)
}

// Redis is killed in the middle of joins and passes, three times: what was answered
// stays, and every match is told to both, once.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	s, people := withPlayers(t, "RECONCILE_AFTER=1ms") // with wakes, as in the real
	const players, workers, rounds = 96, 8, 3
	type seen struct {
		token, user, ticketID string
		match, peer           string // as it was answered
	}
	everybody := make([]seen, players)
	atOnce(workers, func(worker int) {
		for i := worker; i < players; i += workers {
			token := people.patient(t, fmt.Sprint("player", i))
			everybody[i] = seen{token: token, user: s.userID(token)}
		}
	})
	client := s.queueClient()
	defer client.Close()
	var mutex sync.Mutex
	matched, failed := 0, 0
	progress := func() int { mutex.Lock(); defer mutex.Unlock(); return matched }
	done := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { // the schedule
		for {
			for _, function := range []string{"match", "announce", "notify", "deliver"} {
				s.tryTick(function)
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
	var killer sync.WaitGroup
	killer.Go(func() {
		for round := range rounds {
			eventually(t, queuePatience, "some are matched", func() bool { return progress() >= (round+1)*players/(rounds+2) })
			s.killRedis(client)
		}
	})
	var next atomic.Int64 // whoever is free takes the next: with fixed shares the last two could be one worker's
	atOnce(workers, func(int) {
		for i := next.Add(1) - 1; i < players; i = next.Add(1) - 1 {
			p := &everybody[i]
			deadline := time.Now().Add(2 * queuePatience)
			for p.match == "" {
				if time.Now().After(deadline) {
					t.Errorf("%s is not matched", p.user)
					return
				}
				var a answer
				if p.ticketID == "" {
					a = s.joinWith(p.token, "casual", "k1", `{}`)
				} else {
					a = s.call(http.MethodGet, ticketPath(p.ticketID), p.token, "")
				}
				switch got := a.json(t); {
				case a.status == http.StatusServiceUnavailable:
					mutex.Lock()
					failed++
					mutex.Unlock()
					time.Sleep(5 * time.Millisecond)
				case a.status == http.StatusCreated:
					p.ticketID = got["ticket_id"].(string)
				case a.status != http.StatusOK:
					t.Errorf("%s: %d %s", p.user, a.status, a.body)
					return
				case got["status"] == "MATCHED":
					p.match, p.peer = got["match_id"].(string), got["peer_user_ids"].([]any)[0].(string)
					mutex.Lock()
					matched++
					mutex.Unlock()
				default:
					time.Sleep(10 * time.Millisecond) // between looks, as a client would
				}
			}
		}
	})
	killer.Wait()
	t.Logf("%d matched, %d times 503", matched, failed)
	eventually(t, queuePatience, "all are told", func() bool {
		s.leasesPass(client)
		return s.count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT'`) >= players
	})
	stop()
	s.wantWhole()
	byUser := map[string]seen{}
	for _, p := range everybody {
		byUser[p.user] = p
	}
	for _, p := range everybody {
		if peer := byUser[p.peer]; peer.peer != p.user || peer.match != p.match {
			t.Errorf("%s was told %s with %s, who was told %s with %s", p.user, p.match, p.peer, peer.match, peer.peer)
		}
		now := s.readTicket(p.token, p.ticketID)
		if now["status"] != "MATCHED" || now["match_id"] != p.match || now["session"] == nil {
			t.Errorf("%s was told %s, and the ticket is %v", p.user, p.match, now)
		}
		s.wantTold([2]string{p.user, p.peer})
		if n := s.count(`SELECT count(*) FROM notification.notifications WHERE user_id = $1 AND payload->>'match_id' = $2 AND payload->>'ticket_id' = $3`, p.user, p.match, p.ticketID); n != 1 {
			t.Errorf("%s is told %d times of %s", p.user, n, p.match)
		}
	}
	if n := s.count(`SELECT count(*) FROM notification.notifications`); n != players {
		t.Errorf("%d notifications for %d players", n, players)
	}
	// All have arrived: nothing is kept, and nobody is told again.
	eventually(t, queuePatience, "the stream is empty", func() bool { s.tryTick("reconcile"); return waitingEntries(client) == 0 })
	s.matchAll()
	if n := s.count(`SELECT count(*) FROM notification.notifications`); n != players {
		t.Errorf("%d notifications for %d players", n, players)
	}
}
