// Package console is the function for operators: what is happening now, what is stuck and
// why, and acts that mend it. Everything is there as HTTP API (/v1/operations/…), on which
// `miniserver ops` is built, and as pages (/console). Operators act, viewers look, and to
// everybody else there is nothing here.
package console

import (
	"html/template"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/functions/internal/broker"
	"github.com/miniserversystem/miniserver/functions/internal/queues"
	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/session"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

var (
	lookers = []string{auth.RoleOperator, auth.RoleViewer}
	actors  = []string{auth.RoleOperator}
)

func look(id, path, summary, description string, refuses ...int) fn.Route {
	return fn.Route{ID: id, Method: http.MethodGet, Path: path, Summary: summary, Description: description, Roles: lookers, ShownTo: lookers, Refuses: refuses}
}

// The routes.
var (
	Flow = look("get-flow", "/v1/operations/flow", "See what waits where",
		"Outboxes, streams, notifications, queues of players, transfers and dead letters, as of now. A part that cannot be read is missing, and away says why.")
	Samples = look("list-samples", "/v1/operations/samples", "See the last hours",
		"One sample every ten seconds, oldest first, for a day at most.")
	Failed = look("list-failed", "/v1/operations/queues/{queue}/failed", "List FAILED rows",
		"Of an outbox or of the notifications, the latest failure first.", http.StatusNotFound)
	Letters = look("list-letters", "/v1/operations/queues/{queue}/letters", "List messages that could not be read",
		"Newest first.", http.StatusNotFound)
	Acts = look("list-acts", "/v1/operations/acts", "List what operators did",
		"Newest first: who, when, what and why.")
	GetAct = look("get-act", "/v1/operations/acts/{act_id}", "Read an act", "With its progress.", http.StatusNotFound)
	User   = look("get-user", "/v1/operations/users/{user_id}", "See all about one person",
		"Account, entitlements, notifications, tickets, accounts of money and sessions; up to 100 of each. A part that cannot be read is missing, and away says why.")
	Settings = look("list-settings", "/v1/operations/settings", "See the schedule and the settings in force",
		"Of the process that answers. Secrets are not shown.")

	DryRun = fn.Route{
		ID: "dry-run-act", Method: http.MethodPost, Path: "/v1/operations/acts/dry-run", Roles: lookers, ShownTo: lookers,
		Summary:     "Count what an act would change",
		Description: "Changes nothing.",
	}
	Begin = fn.Route{
		ID: "begin-act", Method: http.MethodPost, Path: "/v1/operations/acts", Roles: actors, ShownTo: lookers,
		Refuses: []int{http.StatusConflict},
		Summary: "Requeue, republish, replay, discard or sign out",
		Description: "Records who asks for what and why, and begins to do it, in batches of at most per_second rows. " +
			"It changes at most at_most rows, which should be what the dry run counted. Rows that fail after this moment are not its. " +
			"Read the act for its progress; it can be stopped and resumed.",
	}
	Stop = fn.Route{
		ID: "stop-act", Method: http.MethodPost, Path: "/v1/operations/acts/{act_id}/stop", Roles: actors, ShownTo: lookers, Bodyless: true,
		Refuses: []int{http.StatusNotFound, http.StatusConflict},
		Summary: "Stop an act", Description: "After the batch that it is at. May be sent any number of times.",
	}
	Resume = fn.Route{
		ID: "resume-act", Method: http.MethodPost, Path: "/v1/operations/acts/{act_id}/resume", Roles: actors, ShownTo: lookers, Bodyless: true,
		Refuses: []int{http.StatusNotFound, http.StatusConflict},
		Summary: "Resume an act", Description: "It goes on where it was stopped. May be sent any number of times.",
	}
)

// The pages. A page's forms are posted to its path or one below.
var (
	Page  = fn.Route{ID: "console", Method: http.MethodGet, Path: "/console", Page: true, Roles: lookers, ShownTo: lookers}
	Pages = fn.Route{ID: "console-pages", Method: http.MethodGet, Path: "/console/{page...}", Page: true, Roles: lookers, ShownTo: lookers}
	Forms = fn.Route{ID: "console-forms", Method: http.MethodPost, Path: "/console/{page...}", Page: true, Roles: lookers, ShownTo: lookers}
)

// Routes are all of them.
var Routes = []fn.Route{Flow, Samples, Failed, Letters, Acts, GetAct, User, Settings, Export, DryRun, Begin, Stop, Resume, Page, Pages, Forms}

type function struct {
	env           *fn.Env
	accounts      *account.Store
	entitlements  *entitlement.Store
	notifications *notification.Store
	transfers     *transfer.Store
	players       *matchmaking.Store
	sessions      *session.Store
	streams       []stream
	queues        []queue
	desks         []*act.Desk
	samples       redis.UniversalClient
	sampled       int64 // the last slot that this process knows of; only the tick uses it
	wake          func()

	looking  sync.Mutex
	looked   flow      // the last reading
	lookedAt time.Time // when it ended

	templates *template.Template // of the pages
}

// stream is what a consumer has yet to take.
type stream struct {
	subject, consumer string
	messages          broker.Consumer
}

// New registers the function.
func New(e *fn.Env) error {
	f := &function{env: e, wake: e.Waker("console")}
	if err := f.open(e); err != nil {
		return err
	}
	fn.Handle(e, Flow, f.flow)
	fn.Handle(e, Samples, f.listSamples)
	fn.Handle(e, Failed, f.listFailed)
	fn.Handle(e, Letters, f.listLetters)
	fn.Handle(e, Acts, f.listActs)
	fn.Handle(e, GetAct, f.getAct)
	fn.Handle(e, User, f.user, fn.Nullable[matchmaking.Ticket]("session"))
	fn.Handle(e, Settings, f.settings)
	fn.Handle(e, Export, f.export, fn.Nullable[matchmaking.Ticket]("session"))
	fn.Handle(e, DryRun, f.dryRun)
	fn.Handle(e, Begin, f.begin, fn.Creates)
	fn.Handle(e, Stop, f.stop)
	fn.Handle(e, Resume, f.resume)
	pages := f.pages()
	for _, route := range []fn.Route{Page, Pages, Forms} {
		fn.HandlePage(e, route, pages.ServeHTTP)
	}
	f.tick()
	return nil
}

func (f *function) open(e *fn.Env) error {
	accounts, err := e.Postgres("account")
	if err != nil {
		return err
	}
	entitlements, err := e.Postgres("entitlement")
	if err != nil {
		return err
	}
	notifications, err := e.Postgres("notification")
	if err != nil {
		return err
	}
	transfers, err := e.Postgres("transfer")
	if err != nil {
		return err
	}
	sessions, err := e.SessionRedis()
	if err != nil {
		return err
	}
	if f.samples, err = e.Redis(); err != nil {
		return err
	}
	if f.players, _, err = queues.Open(e); err != nil {
		return err
	}
	f.accounts, f.entitlements = account.NewStore(accounts), entitlement.NewStore(entitlements, e.Settings.IdempotencyRetention)
	f.notifications, f.transfers = notification.NewStore(notifications), transfer.NewStore(transfers)
	f.sessions = session.NewStore(sessions, session.Limits{Idle: e.Settings.SessionIdle, Absolute: e.Settings.SessionLifetime})
	for _, subject := range event.ForPeople {
		f.streams = append(f.streams, stream{subject, notification.Consumer, jetstream.NewConsumer(e.NATS(), subject, notification.Consumer)})
	}
	f.streams = append(f.streams, stream{event.TransferSubject, transfer.Consumer, broker.Completed(e)})
	f.setUpQueues(accounts, entitlements, notifications, transfers)
	return nil
}
