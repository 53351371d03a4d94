package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/pkg/postgres"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

const (
	moneyAccounts = 1_000
	moneyClients  = 32
	plenty        = "100000000"
)

// transfer measures transfers over HTTP between a thousand accounts beside pgbench, which
// writes what a transfer without its key writes in one statement: two balances, the
// transfer, its event. It also measures transfers to one
// account beside a transaction with a round trip for each write.
func (b *bench) transfer(ctx context.Context) error {
	issuer, err := b.tokenIssuer()
	if err != nil {
		return err
	}
	told, err := b.bank(ctx, "money_told", issuer)
	if err != nil {
		return err
	}
	alone, err := b.bank(ctx, "money_alone", issuer, "WAKES=false", "SCHEDULE=off")
	if err != nil {
		return err
	}
	peer, limitName, err := b.moneyWrites(ctx)
	if err != nil {
		return err
	}
	direct, naive, err := b.hot(ctx)
	if err != nil {
		return err
	}
	arms := []arm{
		{"four writes", peer},
		{"alone", alone.transfers(b, (*customer).send, among(moneyAccounts))},
		{"alone, with their keys", alone.transfers(b, (*customer).sendWithKey, among(moneyAccounts))},
		{"told", told.transfers(b, (*customer).send, among(moneyAccounts))},
		{"alone, one hot account", alone.transfers(b, (*customer).send, one)},
		{"hot, without HTTP", direct},
		{"hot, naive", naive},
	}
	window := b.sizes.window
	b.sizes.window = time.Second
	for _, a := range arms { // to warm up
		if _, err := a.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	b.sizes.window = window
	m, err := b.rounds(ctx, arms...)
	if err != nil {
		return err
	}
	b.atLeast("transfer over HTTP, 1,000 accounts, 32 clients, nothing downstream", m[1], limitName, m[0], 1)
	b.row("transfer over HTTP with the request for its key, 32 clients", perSecond(m[2]), limitName+": "+perSecond(m[0]), judged(m[2]/m[0], true), "–")
	b.row("transfer over HTTP, 32 clients, while owners are told", perSecond(m[3]), limitName+": "+perSecond(m[0]), judged(m[3]/m[0], true), "–")
	b.row("transfer over HTTP to one hot account, 32 clients", perSecond(m[4]), "between 1,000 accounts: "+perSecond(m[1]), judged(m[4]/m[1], true), "–")
	b.atLeast("transfer to one hot account without HTTP, 32 workers", m[5], "two transactions of a round trip for each statement", m[6], 5)
	return nil
}

// bank is a system whose players have accounts.
type bank struct {
	*system
	players  []player
	store    *transfer.Store
	accounts []int64 // account i belongs to player i % playerCount
}

func (b *bench) bank(ctx context.Context, name string, issuer *tokenIssuer, environment ...string) (*bank, error) {
	s, err := b.system(ctx, name, append([]string{"OIDC_ISSUER=" + issuer.url}, environment...)...)
	if err != nil {
		return nil, err
	}
	k := &bank{system: s, store: transfer.NewStore(s.pool)}
	if k.players, err = b.players(ctx, s, issuer, playerCount); err != nil {
		return nil, err
	}
	k.accounts, err = openAccounts(ctx, k.store, moneyAccounts, func(i int) string { return k.players[i%playerCount].userID })
	return k, err
}

func openAccounts(ctx context.Context, store *transfer.Store, n int, owner func(int) string) ([]int64, error) {
	balance, err := transfer.ParseAmount(plenty)
	if err != nil {
		return nil, err
	}
	accounts := make([]int64, n)
	for i := range accounts {
		if accounts[i], err = openAccount(ctx, store, owner(i), balance); err != nil {
			return nil, err
		}
	}
	return accounts, nil
}

func openAccount(ctx context.Context, store *transfer.Store, owner string, balance transfer.Amount) (int64, error) {
	opened, err := store.OpenAccount(ctx, transfer.Open{
		Client: caller, Key: uuid.NewString(), Owner: owner, Currency: "EUR", Balance: &balance, Retention: retention,
	})
	if err != nil {
		return 0, err
	}
	return openedAccount(opened.Body)
}

// openedAccount returns the id in the answer to the opening of an account, its first field.
func openedAccount(answer []byte) (int64, error) {
	text := string(answer)
	return strconv.ParseInt(text[strings.IndexByte(text, ':')+1:strings.IndexByte(text, ',')], 10, 64)
}

// among picks two of n accounts; one picks a sender, and always the same recipient.
func among(n int) func() (from, to int) {
	return func() (from, to int) {
		from = rand.IntN(n)
		return from, (from + 1 + rand.IntN(n-1)) % n
	}
}

func one() (from, to int) { return 1 + rand.IntN(moneyAccounts-1), 0 }

// customer is one connection over which transfers are sent.
type customer struct {
	*client
	bank *bank
	keys *keyring
}

// transfers is an arm; keys are issued before its time begins.
func (k *bank) transfers(b *bench, send func(*customer, int, int) error, pick func() (int, int)) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		keys, err := k.issue(ctx, int(b.sizes.window.Seconds()+1)*10_000, playerCount)
		if err != nil {
			return 0, err
		}
		return load(ctx, moneyClients, b.sizes.window, k.payer(keys, send, pick))
	}
}

// payer opens customers who send transfers between the accounts that pick picks.
func (k *bank) payer(keys *keyring, send func(*customer, int, int) error, pick func() (int, int)) func(context.Context) (func() error, func(), error) {
	return func(ctx context.Context) (func() error, func(), error) {
		c, err := dial(ctx, k.address, "")
		if err != nil {
			return nil, nil, err
		}
		mine := &customer{c, k, keys}
		return func() error {
			from, to := pick()
			return send(mine, from, to)
		}, c.close, nil
	}
}

// keyring has unused keys of each player.
type keyring struct {
	keys [playerCount][]string
	next [playerCount]atomic.Int32
}

// issue makes n keys of the first players.
func (k *bank) issue(ctx context.Context, n, players int) (*keyring, error) {
	ring := &keyring{}
	rows, err := k.pool.Query(ctx, `
		INSERT INTO integration.idempotency_key (client_id, scope, idempotency_key, expires_at)
		SELECT 'bench-player-' || lpad((i % $1)::text, 3, '0'), $2, gen_random_uuid(), now() + interval '30 minutes' FROM generate_series(0, $3 - 1) i
		RETURNING right(client_id, 3)::int, idempotency_key`, players, transfer.Scope, n)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var player int
		var key string
		if err := rows.Scan(&player, &key); err != nil {
			return nil, err
		}
		ring.keys[player] = append(ring.keys[player], key)
	}
	return ring, rows.Err()
}

// send transfers with a key that was issued before.
func (c *customer) send(from, to int) error {
	player := from % playerCount
	n := int(c.keys.next[player].Add(1)) - 1
	if n >= len(c.keys.keys[player]) {
		return errors.New("more transfers than keys were issued for")
	}
	return c.transfer(player, c.keys.keys[player][n], from, to)
}

// sendWithKey gets a key first.
func (c *customer) sendWithKey(from, to int) error {
	player := from % playerCount
	answer, err := c.post("/v1/idempotency-keys", c.bank.players[player].bearer, "", 201)
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(answer), `"idempotencyKey":"`)
	key, _, _ := strings.Cut(rest, `"`)
	return c.transfer(player, key, from, to)
}

func (c *customer) transfer(player int, key string, from, to int) error {
	answer, err := c.post("/v1/transfers", c.bank.players[player].bearer+"Idempotency-Key: "+key+"\r\nContent-Type: application/json\r\n",
		fmt.Sprintf(`{"fromAccountId":%d,"toAccountId":%d,"amount":0.01}`, c.bank.accounts[from], c.bank.accounts[to]), 200)
	if err == nil && !strings.Contains(string(answer), "SUCCEEDED") {
		err = fmt.Errorf("a transfer answered %s", answer)
	}
	return err
}

// moneyWrites is the limit of transfers: two balances, the transfer and its event, in one
// statement, by pgbench.
func (b *bench) moneyWrites(ctx context.Context) (run func(context.Context) (float64, error), name string, err error) {
	database, err := b.database(ctx, "money_pgbench")
	if err != nil {
		return nil, "", err
	}
	pool, err := postgres.Open(database, 2, "cache_statement", nil)
	if err != nil {
		return nil, "", err
	}
	defer pool.Close()
	if _, err := openAccounts(ctx, transfer.NewStore(pool), moneyAccounts, strconv.Itoa); err != nil {
		return nil, "", err
	}
	program, err := b.findPgbench()
	if err != nil {
		return nil, "", err
	}
	// The lower account first, as in ours: otherwise they would deadlock. Account 2 is
	// the system's. Ids grow, as UUIDv7 do.
	const text = `\set n :n + 1
\set low random(3, 999)
\set high random(:low + 1, 1000)
\set b random(100000000000, 999999999999)
\set c random(100000000000, 999999999999)
WITH l AS (SELECT account_id FROM core.account WHERE account_id IN (:low::bigint, :high::bigint) ORDER BY account_id FOR NO KEY UPDATE),
d AS (UPDATE core.account SET balance = balance - 0.01 WHERE account_id = :low::bigint AND (SELECT count(*) FROM l) = 2),
e AS (UPDATE core.account SET balance = balance + 0.01 WHERE account_id = :high::bigint AND (SELECT count(*) FROM l) = 2),
t AS (INSERT INTO core.transfer (transfer_id, from_account_id, to_account_id, amount, currency, kind, created_at)
	VALUES ((:n::text || '-0000-7000-8000-' || :b::text)::uuid, :low::bigint, :high::bigint, 0.01, 'EUR', 'TRANSFER', now()) RETURNING transfer_id)
INSERT INTO integration.outbox_events (event_id, aggregate_key, event_type, payload, occurred_at)
SELECT (:n::text || '-0000-7000-8000-' || :c::text)::uuid, transfer_id, 'TransferCompleted', jsonb_build_object('transfer_id', transfer_id, 'amount', '0.0100',
	'from_account_id', :low::bigint, 'to_account_id', :high::bigint, 'from_user_id', 'u_01h455vb4pex5vsknk084sn02q', 'to_user_id', 'u_01h455vb4pex5vsknk084sn02q'), now() FROM t;
`
	script := filepath.Join(b.dir, "transfer.pgbench")
	if err := os.WriteFile(script, []byte(text), 0o644); err != nil {
		return nil, "", err
	}
	run, err = b.pgbench(program, database, script)
	return run, "pgbench, four writes in one statement, 16 connections", err
}

// hot returns arms that transfer to one account without HTTP: by the store, and by a
// round trip for each statement.
func (b *bench) hot(ctx context.Context) (ours, naive func(context.Context) (float64, error), err error) {
	database, err := b.database(ctx, "money_hot")
	if err != nil {
		return nil, nil, err
	}
	pool, err := postgres.Open(database, poolSize, "cache_statement", nil)
	if err != nil {
		return nil, nil, err
	}
	b.onTidy(func() error { pool.Close(); return nil })
	k := &bank{system: &system{pool: pool}, store: transfer.NewStore(pool)}
	owner := func(i int) string { return fmt.Sprintf("bench-player-%03d", i%playerCount) }
	if k.accounts, err = openAccounts(ctx, k.store, moneyAccounts, owner); err != nil {
		return nil, nil, err
	}
	cent, err := transfer.ParseAmount("0.01")
	if err != nil {
		return nil, nil, err
	}
	workers := func(do func(ctx context.Context, player, key string, from, to int64) error) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			keys, err := k.issue(ctx, int(b.sizes.window.Seconds()+1)*10_000, playerCount)
			if err != nil {
				return 0, err
			}
			return load(ctx, moneyClients, b.sizes.window, func(ctx context.Context) (func() error, func(), error) {
				return func() error {
					from, to := one()
					player := from % playerCount
					n := int(keys.next[player].Add(1)) - 1
					if n >= len(keys.keys[player]) {
						return errors.New("more transfers than keys were issued for")
					}
					return do(ctx, owner(player), keys.keys[player][n], k.accounts[from], k.accounts[to])
				}, func() {}, nil
			})
		}
	}
	ours = workers(func(ctx context.Context, player, key string, from, to int64) error {
		a, err := k.store.Transfer(ctx, transfer.Request{Client: player, Key: key, Owner: player, From: from, To: to, Amount: cent, Traceparent: traceparent})
		if err == nil && a.Status != transfer.Succeeded {
			err = fmt.Errorf("it ended as %q", a.Body)
		}
		return err
	})
	naive = workers(func(ctx context.Context, player, key string, from, to int64) error {
		return naiveTransfer(ctx, pool, player, key, from, to)
	})
	return ours, naive, nil
}
