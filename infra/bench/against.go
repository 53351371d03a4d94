package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
)

const (
	// notSlower is the ratio below which something became slower: two runs of one commit
	// differ by less.
	notSlower = 0.9
	warmUp    = 300 * time.Millisecond
)

// contender is a build that is measured, in two systems: with everything up to the sent
// notification, and with wakes and schedule off.
type contender struct {
	name        string
	told, alone *system
	bank        *bank
	works       []work
}

// work is what contenders are compared by.
type work struct {
	name string
	run  func(context.Context) (perSecond float64, err error)
	cpu  *probe // whose CPU a request is noted; may be nil
}

// against measures this tree beside the commit b.other over HTTP, by turns on the same
// servers, each on databases that its own migrations made: nothing gets slower unseen.
func (b *bench) against(ctx context.Context) error {
	program, err := b.buildCommit(ctx, b.other)
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
	ours, err := b.contender(ctx, "this tree", "ours", b.serve, issuer)
	if err != nil {
		return err
	}
	theirs, err := b.contender(ctx, b.other, "theirs", program, issuer)
	if err != nil {
		return fmt.Errorf("%s: %w", b.other, err)
	}
	var arms []arm
	for i := range ours.works {
		for _, c := range []*contender{ours, theirs} {
			arms = append(arms, arm{c.works[i].name + ", " + c.name, c.works[i].run})
		}
	}
	window, front := b.sizes.window, b.sizes.front
	b.sizes.window, b.sizes.front = warmUp, warmUp
	for _, a := range arms {
		if _, err := a.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	b.sizes.window, b.sizes.front = window, front
	for _, w := range slices.Concat(ours.works, theirs.works) {
		if w.cpu != nil {
			w.cpu.cpu = nil
		}
	}
	m, err := b.rounds(ctx, arms...)
	if err != nil {
		return err
	}
	for i, w := range ours.works {
		b.atLeast(w.name, m[2*i], b.other, m[2*i+1], notSlower)
		if w.cpu != nil {
			b.note("CPU of the process for %s: %d µs, at %s %d µs.", w.name, percentile(w.cpu.cpu, 0.5).Microseconds(),
				b.other, percentile(theirs.works[i].cpu.cpu, 0.5).Microseconds())
		}
	}
	return b.sooner(ctx, ours, theirs)
}

// sooner compares the times from grant to SENT.
func (b *bench) sooner(ctx context.Context, ours, theirs *contender) error {
	var took [2][]time.Duration
	for round := range b.sizes.rounds + 1 {
		for i, c := range []*contender{ours, theirs} {
			some, err := b.paced(ctx, c.told, int(b.sizes.paced.Seconds()*pacedPerSecond))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			if round > 0 { // the first is to warm up
				took[i] = append(took[i], some...)
			}
		}
	}
	for _, p := range []float64{0.5, 0.99} {
		own, other := percentile(took[0], p), percentile(took[1], p)
		ratio := float64(own) / float64(other)
		b.row(fmt.Sprintf("grant → SENT at %d/s, p%.0f", pacedPerSecond, 100*p), ms(own), b.other+": "+ms(other), judged(ratio, ratio <= 1/notSlower), fmt.Sprintf("≤ %.2f", 1/notSlower))
	}
	return nil
}

// buildCommit builds the server of a commit and returns its path.
func (b *bench) buildCommit(ctx context.Context, commit string) (string, error) {
	tree, err := filepath.Abs(filepath.Join(b.dir, "other"))
	if err != nil {
		return "", err
	}
	git := func(arguments ...string) error {
		command := exec.CommandContext(ctx, "git", arguments...)
		if printed, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", arguments[0], err, printed)
		}
		return nil
	}
	if err := errors.Join(os.RemoveAll(tree), git("worktree", "prune"), git("worktree", "add", "--detach", tree, commit)); err != nil {
		return "", err
	}
	program := tree + ".miniserver"
	return program, errors.Join(build(ctx, tree, program, "./infra/miniserver"), git("worktree", "remove", "--force", tree))
}

// contender starts the systems of a build; short is part of their databases' names.
func (b *bench) contender(ctx context.Context, name, short, program string, issuer *tokenIssuer) (*contender, error) {
	c := &contender{name: name}
	var err error
	if c.told, err = b.systemOf(ctx, program, short+"_told", "OIDC_ISSUER="+issuer.url); err != nil {
		return nil, err
	}
	if c.alone, err = b.systemOf(ctx, program, short+"_alone", "OIDC_ISSUER="+issuer.url, "WAKES=false", "SCHEDULE=off"); err != nil {
		return nil, err
	}
	if c.bank, err = b.bankOver(ctx, c.alone, issuer); err != nil {
		return nil, err
	}
	grants := func(clients int) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			return b.grants(ctx, c.alone.address, clients, b.sizes.window)
		}
	}
	replays, err := b.replays(ctx, c.told)
	if err != nil {
		return nil, err
	}
	c.works = []work{
		{"grant, 1 client", grants(1), nil},
		{"grant, 64 clients", grants(64), nil},
		{"replay of a grant, 32 clients", replays, nil},
		{"transfer with the request for its key, 32 clients", c.bank.transfers(b, (*customer).sendWithKey, among(moneyAccounts)), nil},
	}
	for _, p := range []*probe{
		{name: "GET /v1/me, bearer token, 32 clients", asks: me(c.alone, c.bank.players, byBearer)},
		{name: "GET /v1/me, session cookie, 32 clients", asks: me(c.alone, c.bank.players, byCookie)},
		{name: "GET /v1/me/overview, session cookie, 32 clients", asks: overviews(c.alone, c.bank.players, byCookie)},
	} {
		p.address, p.pid = c.alone.address, c.alone.process.Pid
		if err := p.warm(ctx, warmUp); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		c.works = append(c.works, work{p.name, func(ctx context.Context) (float64, error) { return p.run(b.sizes.front)(ctx) }, p})
	}
	return c, nil
}

// bankOver is bank for a build whose functions in the database may be others: its accounts
// are opened over HTTP.
func (b *bench) bankOver(ctx context.Context, s *system, issuer *tokenIssuer) (*bank, error) {
	players, err := b.players(ctx, s, issuer, playerCount)
	if err != nil {
		return nil, err
	}
	operator, err := issuer.token("bench-operator", webClient, auth.RoleOperator)
	if err != nil {
		return nil, err
	}
	c, err := dial(ctx, s.address, "")
	if err != nil {
		return nil, err
	}
	defer c.close()
	k := &bank{system: s, players: players, accounts: make([]int64, moneyAccounts)}
	for i := range k.accounts {
		answer, err := c.post("/v1/accounts", fmt.Sprintf("Authorization: Bearer %s\r\nIdempotency-Key: account-%d\r\nContent-Type: application/json\r\n", operator, i),
			fmt.Sprintf(`{"ownerUserId":%q,"currency":"EUR","initialBalance":%s}`, players[i%playerCount].userID, plenty), 201)
		if err != nil {
			return nil, err
		}
		if k.accounts[i], err = openedAccount(answer); err != nil {
			return nil, err
		}
	}
	return k, nil
}
