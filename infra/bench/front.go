package main

import (
	"context"
	"fmt"
	"strings"
)

const frontClients = 32

// front measures what the gateway costs players who read their own data, beside a bare
// net/http handler, and beside one that also asks Redis and Postgres once each: the least
// that a request for an account needs.
func (b *bench) front(ctx context.Context) error {
	issuer, err := b.tokenIssuer()
	if err != nil {
		return err
	}
	s, players, err := b.door(ctx, "front", issuer, playerCount)
	if err != nil {
		return err
	}
	away, strangers, err := b.door(ctx, "away", issuer, playerCount)
	if err != nil {
		return err
	}
	p, err := b.peer(ctx, s, issuer)
	if err != nil {
		return err
	}
	if err := away.redis.Stop(); err != nil {
		return err
	}
	probes := []*probe{
		{name: "GET /v1/me, bearer token", address: s.address, pid: s.process.Pid, asks: me(s, players, byBearer)},
		{name: "GET /v1/me, session cookie", address: s.address, pid: s.process.Pid, asks: me(s, players, byCookie)},
		{name: "GET /v1/me/overview, bearer token", address: s.address, pid: s.process.Pid, asks: overviews(s, players, byBearer)},
		{name: "GET /v1/me/overview, session cookie", address: s.address, pid: s.process.Pid, asks: overviews(s, players, byCookie)},
		{name: "GET /v1/me, bearer token, Redis stopped", address: away.address, pid: away.process.Pid, asks: me(away, strangers, byBearer)},
		{name: "bare net/http", address: p.address, pid: p.process.Pid, asks: []ask{newAsk(p.address, "/bare", players[0].bearer, "x")}},
		{name: "net/http, one Redis GET, one Postgres SELECT", address: p.address, pid: p.process.Pid, asks: []ask{newAsk(p.address, "/stores", players[0].bearer, "x")}},
	}
	arms := make([]arm, len(probes))
	for i, p := range probes {
		if err := p.warm(ctx, b.sizes.front/3); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		arms[i] = arm{p.name, p.run(b.sizes.front)}
	}
	m, err := b.rounds(ctx, arms...)
	if err != nil {
		return err
	}
	pair := func(ours, limit int) {
		b.row(fmt.Sprintf("%s, %d clients", probes[ours].name, frontClients), probes[ours].text(m[ours]),
			probes[limit].name+": "+probes[limit].text(m[limit]), judged(m[ours]/m[limit], true), "–")
	}
	const bearer, stopped, bare, stores = 0, 4, 5, 6
	for ours := range stopped {
		pair(ours, stores)
	}
	pair(bearer, bare)
	pair(stores, bare)
	pair(stopped, bearer)
	var costs []string
	for _, p := range probes {
		costs = append(costs, fmt.Sprintf("%s: %d µs", p.name, percentile(p.cpu, 0.5).Microseconds()))
	}
	b.note("CPU that the serving process took for a request, kernel included, stores not: %s.", strings.Join(costs, "; "))
	return nil
}

// door starts an experiment's system, with its players; environment overrides settings.
func (b *bench) door(ctx context.Context, name string, issuer *tokenIssuer, count int, environment ...string) (*system, []player, error) {
	s, err := b.system(ctx, name, append([]string{"OIDC_ISSUER=" + issuer.url}, environment...)...)
	if err != nil {
		return nil, nil, err
	}
	players, err := b.players(ctx, s, issuer, count)
	return s, players, err
}

func byBearer(p player) string { return p.bearer }
func byCookie(p player) string { return p.cookie }

// me are the requests of players for their accounts.
func me(s *system, players []player, by func(player) string) []ask {
	asks := make([]ask, len(players))
	for i, p := range players {
		asks[i] = newAsk(s.address, "/v1/me", by(p), `"user_id":"`+p.userID+`"`)
	}
	return asks
}

// overviews are the requests for everything at once. A part that failed would be cheap.
func overviews(s *system, players []player, by func(player) string) []ask {
	asks := make([]ask, len(players))
	for i, p := range players {
		asks[i] = newAsk(s.address, "/v1/me/overview", by(p), `"errors":{}`)
	}
	return asks
}
