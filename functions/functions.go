// Package functions is the registry: every function of the system, once. The
// gateway's routes, the local process, the manifests under infra/ and the table
// in docs/ are derived from it.
package functions

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/functions/account"
	"github.com/miniserversystem/miniserver/functions/announce"
	"github.com/miniserversystem/miniserver/functions/cleanup"
	"github.com/miniserversystem/miniserver/functions/console"
	"github.com/miniserversystem/miniserver/functions/deliver"
	"github.com/miniserversystem/miniserver/functions/entitlements"
	"github.com/miniserversystem/miniserver/functions/gateway"
	"github.com/miniserversystem/miniserver/functions/grant"
	"github.com/miniserversystem/miniserver/functions/inbox"
	"github.com/miniserversystem/miniserver/functions/ledger"
	"github.com/miniserversystem/miniserver/functions/match"
	"github.com/miniserversystem/miniserver/functions/notify"
	"github.com/miniserversystem/miniserver/functions/reconcile"
	"github.com/miniserversystem/miniserver/functions/relay"
	"github.com/miniserversystem/miniserver/functions/revoke"
	"github.com/miniserversystem/miniserver/functions/settle"
	"github.com/miniserversystem/miniserver/functions/stream"
	"github.com/miniserversystem/miniserver/functions/ticket"
	"github.com/miniserversystem/miniserver/functions/transfer"
	"github.com/miniserversystem/miniserver/functions/watchdog"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/live"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/rights"
	transfers "github.com/miniserversystem/miniserver/pkg/transfer"
)

// GatewayName names the one public function.
const GatewayName = "gateway"

// Rights that several functions share.
var (
	queueKeys = []string{"mm:*"}
	settled   = rights.Consumer{Subject: event.TransferSubject, Durable: transfers.Consumer}
	notified  = []rights.Consumer{
		{Subject: event.EntitlementSubject, Durable: notification.Consumer},
		{Subject: event.MatchmakingSubject, Durable: notification.Consumer},
		{Subject: event.SettledSubject, Durable: notification.Consumer},
	}
)

// TogetherUser is the user of a process that holds all functions.
const TogetherUser = "functions"

// Users are the users of Redis and NATS with their rights: one for each function that
// connects to either, and TogetherUser.
func Users() map[string]rights.Rights {
	users := map[string]rights.Rights{}
	var all []rights.Rights
	for _, f := range All {
		all = append(all, f.Rights)
		if slices.ContainsFunc(append(slices.Clone(f.Stores), f.Optional...), func(s fn.Store) bool { return s == fn.Redis || s == fn.NATS }) {
			users[f.Name] = f.Rights
		}
	}
	users[TogetherUser] = rights.Union(all...)
	return users
}

// All is the registry.
var All = []fn.Function{
	{
		Name: GatewayName, Summary: "authenticates and limits callers, and forwards to functions",
		New: gateway.New, Public: true,
		Routes: []fn.Route{gateway.Overview, gateway.LinkIdentity},
		Stores: []fn.Store{fn.Redis},
		Rights: rights.Rights{Keys: []string{"session:*", "rate:*", "open:*"}},
		// The timeout is that of the live stream behind it.
		Timeout: 5 * time.Minute, Concurrency: 200, MinScale: 1, MaxScale: 10,
	},
	{
		Name: "account", Summary: "maps identities at the issuer to users, with their roles",
		New: account.New, Routes: []fn.Route{account.Register, account.Get},
		Domains: []string{"account"}, Stores: []fn.Store{fn.Postgres},
		Timeout: 10 * time.Second, Concurrency: 64, MaxScale: 10,
	},
	{
		Name: "grant", Summary: "grants an entitlement",
		New: grant.New, Routes: []fn.Route{grant.Route}, Events: []string{grant.Event},
		Domains: []string{"entitlement"}, Stores: []fn.Store{fn.Postgres},
		Wakes:   []string{"relay"},
		Timeout: 10 * time.Second, Concurrency: 64, MaxScale: 10,
	},
	{
		Name: "revoke", Summary: "revokes an entitlement",
		New: revoke.New, Routes: []fn.Route{revoke.Route}, Events: []string{revoke.Event},
		Domains: []string{"entitlement"}, Stores: []fn.Store{fn.Postgres},
		Wakes:   []string{"relay"},
		Timeout: 10 * time.Second, Concurrency: 64, MaxScale: 10,
	},
	{
		Name: "entitlements", Summary: "reads entitlements and their history",
		New: entitlements.New, Routes: []fn.Route{entitlements.List, entitlements.Get, entitlements.History},
		Domains: []string{"entitlement"}, Stores: []fn.Store{fn.Postgres},
		Timeout: 10 * time.Second, Concurrency: 64, MaxScale: 10,
	},
	{
		Name: "relay", Summary: "publishes committed events from the outboxes",
		New: relay.New, Schedule: time.Second,
		Domains: []string{"entitlement", "transfer"}, Stores: []fn.Store{fn.Postgres, fn.NATS, fn.RabbitMQ},
		Wakes:   []string{"settle", "notify"},
		Rights:  rights.Rights{Publishes: []string{event.EntitlementSubject, event.TransferSubject, event.SettledSubject}},
		Timeout: 30 * time.Second, Concurrency: 4, MinScale: 1, MaxScale: 4,
	},
	{
		Name: "ticket", Summary: "joins a matchmaking queue, reads a ticket, leaves the queue",
		New: ticket.New, Routes: []fn.Route{ticket.Join, ticket.List, ticket.Get, ticket.Cancel},
		Stores:  []fn.Store{fn.Redis},
		Wakes:   []string{"match"},
		Rights:  rights.Rights{Keys: queueKeys},
		Timeout: 10 * time.Second, Concurrency: 64, MaxScale: 10,
	},
	{
		Name: "match", Summary: "pairs waiting players",
		New: match.New, Schedule: time.Second, Stores: []fn.Store{fn.Redis},
		Wakes:   []string{"announce"},
		Rights:  rights.Rights{Keys: queueKeys},
		Timeout: 30 * time.Second, Concurrency: 4, MinScale: 1, MaxScale: 2,
	},
	{
		Name: "announce", Summary: "allocates a game server for each match and publishes the match",
		New: announce.New, Schedule: time.Second, Stores: []fn.Store{fn.Redis, fn.NATS},
		Reaches: []fn.Place{fn.Allocator},
		Wakes:   []string{"notify"},
		Rights:  rights.Rights{Keys: queueKeys, Publishes: []string{event.MatchmakingSubject}},
		Timeout: 30 * time.Second, Concurrency: 4, MinScale: 1, MaxScale: 4,
	},
	{
		Name: "transfer", Summary: "moves money between accounts; reads accounts and transfers",
		New: transfer.New,
		Routes: []fn.Route{
			transfer.IssueKey, transfer.Send, transfer.Get, transfer.Reverse,
			transfer.Accounts, transfer.Open, transfer.Account, transfer.Transfers, transfer.Ledger, transfer.BalanceCheck,
		},
		Domains: []string{"transfer"}, Stores: []fn.Store{fn.Postgres},
		Wakes:   []string{"relay", "ledger"},
		Timeout: 10 * time.Second, Concurrency: 64, MaxScale: 10,
	},
	{
		Name: "ledger", Summary: "writes the ledger entries of transfers",
		New: ledger.New, Schedule: time.Second,
		Domains: []string{"transfer"}, Stores: []fn.Store{fn.Postgres},
		Timeout: 30 * time.Second, Concurrency: 4, MaxScale: 4,
	},
	{
		Name: "watchdog", Summary: "ends transfers whose process is gone",
		New: watchdog.New, Schedule: 10 * time.Second,
		Domains: []string{"transfer"}, Stores: []fn.Store{fn.Postgres},
		Timeout: 30 * time.Second, Concurrency: 1, MaxScale: 1,
	},
	{
		Name: "settle", Summary: "handles each completed transfer once, and has both owners notified",
		New: settle.New, Schedule: time.Second,
		Domains: []string{"transfer"}, Stores: []fn.Store{fn.Postgres, fn.NATS, fn.RabbitMQ},
		Wakes:   []string{"relay"},
		Rights:  rights.Rights{Consumes: []rights.Consumer{settled}},
		Timeout: 30 * time.Second, Concurrency: 4, MinScale: 1, MaxScale: 4,
	},
	{
		Name: "notify", Summary: "turns events into notifications, once per event and recipient",
		New: notify.New, Schedule: time.Second,
		Domains: []string{"notification"}, Stores: []fn.Store{fn.Postgres, fn.NATS},
		Wakes:   []string{"deliver"},
		Rights:  rights.Rights{Consumes: notified},
		Timeout: 30 * time.Second, Concurrency: 4, MinScale: 1, MaxScale: 4,
	},
	{
		Name: "deliver", Summary: "delivers notifications to the client",
		New: deliver.New, Schedule: time.Second,
		Domains: []string{"notification"}, Stores: []fn.Store{fn.Postgres},
		Optional: []fn.Store{fn.NATS}, // nudges to live streams
		Reaches:  []fn.Place{fn.Webhooks},
		Rights:   rights.Rights{Sends: []string{live.Everybody}},
		Timeout:  30 * time.Second, Concurrency: 4, MinScale: 1, MaxScale: 4,
	},
	{
		Name: "reconcile", Summary: "republishes events that the broker lost",
		New: reconcile.New, Schedule: time.Minute,
		Domains: []string{"entitlement", "notification", "transfer"}, Stores: []fn.Store{fn.Postgres, fn.Redis, fn.NATS, fn.RabbitMQ},
		Wakes: []string{"settle", "notify", "announce"},
		Rights: rights.Rights{
			Keys: queueKeys, Publishes: []string{event.EntitlementSubject, event.TransferSubject, event.SettledSubject},
			Watches: append([]rights.Consumer{settled}, notified...),
		},
		Timeout: 30 * time.Second, Concurrency: 1, MaxScale: 1,
	},
	{
		Name: "inbox", Summary: "reads notifications",
		New: inbox.New, Routes: []fn.Route{inbox.List, inbox.Read, inbox.Debug},
		Domains: []string{"notification"}, Stores: []fn.Store{fn.Postgres},
		Timeout: 10 * time.Second, Concurrency: 64, MaxScale: 4,
	},
	{
		Name: "stream", Summary: "streams a user's notifications and a ticket's changes, live (server-sent events)",
		New: stream.New, Routes: []fn.Route{stream.Route},
		Domains: []string{"notification"}, Stores: []fn.Store{fn.Postgres, fn.Redis, fn.NATS},
		Rights:  rights.Rights{Keys: queueKeys, Reads: []string{"session:*"}, Listens: []string{live.Everybody}},
		Timeout: 5 * time.Minute, Concurrency: 500, MaxScale: 10,
	},
	{
		Name: "console", Summary: "shows operators what happens and what is stuck, and mends it",
		New: console.New, Routes: console.Routes, Schedule: 10 * time.Second,
		Domains: []string{"account", "entitlement", "notification", "transfer"},
		Stores:  []fn.Store{fn.Postgres, fn.Redis, fn.NATS, fn.RabbitMQ},
		Wakes:   []string{"console"}, // itself, to begin what was asked for
		Rights: rights.Rights{
			Keys:    append([]string{"session:*", "console:*"}, queueKeys...),
			Watches: append([]rights.Consumer{settled}, notified...),
		},
		Timeout: 30 * time.Second, Concurrency: 16, MaxScale: 2,
	},
	{
		Name: "cleanup", Summary: "deletes rows past their retention, creates audit partitions ahead of time",
		New: cleanup.New, Schedule: time.Minute,
		Domains: []string{"entitlement_cleanup", "notification", "transfer"}, Stores: []fn.Store{fn.Postgres},
		Timeout: 60 * time.Second, Concurrency: 1, MaxScale: 1,
	},
}

// Named returns a function of the registry. The error lists all of them.
func Named(name string) (fn.Function, error) {
	var names []string
	for _, f := range All {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return fn.Function{}, fmt.Errorf("there is no function %q; FUNCTION is one of %s, or unset for all of them in one process", name, strings.Join(names, ", "))
}

// Together hosts all functions in one process and returns the gateway, with the others
// behind it. Nothing but the gateway's routes can be reached through it.
func Together(rt *fn.Runtime) (http.Handler, error) {
	rt.Invoke = rt.Here
	if err := rt.Host(rt.Registry...); err != nil {
		return nil, err
	}
	return rt.Here[GatewayName], nil
}
