package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

const (
	// peerVariable makes this program the peer, which needs a process of its own, like
	// the system.
	peerVariable = "BENCH_PEER"
	peerIssuer   = "BENCH_PEER_ISSUER" // whose players it reads
	peerKey      = "bench:peer"        // what it reads in Redis
	peerBytes    = 200                 // of an answer
)

// peer is the least that could do a part of the gateway's work: /bare answers, /stores
// reads one key of Redis and one row of Postgres first, /open keeps the answer open.
type peer struct {
	address string
	process *os.Process
}

// peer starts a peer on the stores of s.
func (b *bench) peer(ctx context.Context, s *system, issuer *tokenIssuer) (*peer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	process, port, err := b.exec(ctx, self, filepath.Join(b.dir, "peer.log"),
		peerVariable+"=true", peerIssuer+"="+issuer.url, "DATABASE_URL="+s.database, "REDIS_URL="+s.redis.URL())
	if err != nil {
		return nil, err
	}
	b.onTidy(func() error { return process.End(inOrder) })
	p := &peer{"127.0.0.1:" + strconv.Itoa(port), process.Process}
	return p, answers(ctx, p.address, "/stores", 10*time.Millisecond)
}

// servePeer is the peer's process. Its pools are those that a function gets.
func servePeer() error {
	debug.SetGCPercent(200) // as infra/miniserver
	s, err := settings.Load()
	if err != nil {
		return err
	}
	rt := fn.NewRuntime(s, slog.New(slog.DiscardHandler), nil)
	pool, err := rt.Postgres("account")
	if err != nil {
		return err
	}
	client, err := rt.Redis()
	if err != nil {
		return err
	}
	body := bytes.Repeat([]byte("x"), peerBytes)
	if err := client.Set(context.Background(), peerKey, body, 0).Err(); err != nil {
		return err
	}
	answer := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body) // the reader may be gone
	}
	issuer := os.Getenv(peerIssuer)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bare", func(w http.ResponseWriter, _ *http.Request) { answer(w) })
	mux.HandleFunc("GET /stores", func(w http.ResponseWriter, r *http.Request) {
		var user uuid.UUID
		_, err := client.Get(r.Context(), peerKey).Bytes()
		if err == nil {
			err = pool.QueryRow(r.Context(), `SELECT user_id FROM account.identities WHERE issuer = $1 AND subject = $2`,
				issuer, playerSubject(rand.IntN(playerCount))).Scan(&user)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w)
	})
	mux.HandleFunc("GET /open", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush() // the reader may be gone
		<-r.Context().Done()
	})
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)))
	if err != nil {
		return errors.Join(fmt.Errorf("cannot listen on port %d", s.Port), err)
	}
	return http.Serve(listener, mux)
}
