package outage_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	natsserver "github.com/miniserversystem/miniserver/infra/dev/nats"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
	"github.com/miniserversystem/miniserver/test/system"
)

// outages is a system whose parts can go away, and its callers.
type outages struct {
	*system.System
	token   string // of the purchase service; the gateway has met it
	session *system.Person
	user    string // the owner of session
}

// visit is what each column of the table needs afresh.
type visit struct {
	name     string
	leaving  *system.Person // signs out
	arriving *system.Person // comes back from the issuer, to callback
	callback string
	unseen   string // an access token that the gateway has not met
}

func (o *outages) visit(name string) visit {
	v := visit{name: name, leaving: o.Person(), arriving: o.Person()}
	v.leaving.SignIn("bob", "/")
	v.callback = v.arriving.AtCallback("carol")
	v.unseen = identity.Token(o.T, o.Settings().OIDCIssuer, issuer.OpsClientID, issuer.OpsClientSecret)
	return v
}

// opens opens a stream, and hangs up if that succeeds.
func (o *outages) opens(path, header string) system.Answer {
	o.T.Helper()
	ctx, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL+path, nil)
	kit.Must(o.T, err)
	name, value, _ := strings.Cut(header, ": ")
	request.Header.Set(name, value)
	response, err := http.DefaultClient.Do(request)
	kit.Must(o.T, err)
	if response.StatusCode != http.StatusOK {
		return o.Read(response, nil)
	}
	response.Body.Close()
	return system.Answer{Status: response.StatusCode, Header: response.Header}
}

// Each route's answer while one part is away; that it keeps the session, and that the
// part's return is enough to recover. 200- is an overview with null parts.
func TestPartsAreAway(t *testing.T) {
	t.Parallel()
	listener := kit.Listen(t)
	people, toIssuer := startSeverableIssuer(t, "http://"+listener.Addr().String(), 10*time.Minute)
	database := kit.Database(t)
	toPostgres, databaseURL := kit.Through(t, database)
	redisDir, natsDir := t.TempDir(), t.TempDir()
	redis := kit.StartRedis(t, redisDir)
	toRedis, redisURL := kit.Through(t, redis.URL())
	nats, err := natsserver.Start(t.Context(), natsserver.Options{Dir: natsDir})
	kit.Must(t, err)
	t.Cleanup(func() { _ = nats.Stop() })
	o := &outages{System: system.StartOn(t, listener, "OIDC_ISSUER="+people.URL(), "WAKES=false",
		"DATABASE_URL="+databaseURL, "REDIS_URL="+redisURL, "NATS_URL="+nats.URL())}
	o.Pool = kit.Connect(t, database)
	o.token = identity.Token(t, people.URL(), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
	o.session = o.Person()
	o.session.SignIn("alice", "/")
	o.user = o.session.Do(http.MethodGet, system.MePath, "").JSON(t)["user_id"].(string)
	o.Writer = o.token
	system.WantStatus(t, o.Call(http.MethodGet, system.MePath, o.token, ""), http.StatusOK)
	kit.Eventually(t, "the process is ready", func() bool { return o.Call(http.MethodGet, "/health/readiness", "", "").Status == http.StatusOK })
	cookie := o.session.Cookie()
	stream := o.Follow("", "Cookie: miniserver_session="+cookie)

	ticket := o.Joined(o.token, "casual", "k1", `{}`)
	const comeBack, signOut = "GET /login/callback", "POST /logout, session"
	owned := "/v1/users/" + o.user + "/entitlements"
	rows := []struct {
		name string
		// The columns: all there, Redis stopped, Redis hangs, issuer, Postgres, NATS.
		want string
		ask  func(visit) system.Answer
	}{
		{"GET /v1/me, token", "200 200 200 200 503 200", func(visit) system.Answer { return o.Call(http.MethodGet, system.MePath, o.token, "") }},
		{"GET /v1/me, token that is new", "200 200 200 200 503 200", func(v visit) system.Answer { return o.Call(http.MethodGet, system.MePath, v.unseen, "") }},
		{"GET /v1/me, session", "200 503 503 200 503 200", func(visit) system.Answer { return o.session.Once(http.MethodGet, system.MePath) }},
		{"POST /v1/me, token", "200 200 200 200 503 200", func(visit) system.Answer { return o.Call(http.MethodPost, system.MePath, o.token, "") }},
		{"GET /v1/me/overview, token", "200 200- 200- 200 200- 200", func(visit) system.Answer { return o.Call(http.MethodGet, system.OverviewPath, o.token, "") }},
		{"GET /v1/me/overview, session", "200 503 503 200 200- 200", func(visit) system.Answer { return o.session.Once(http.MethodGet, system.OverviewPath) }},
		{"GET entitlements, token", "200 200 200 200 503 200", func(visit) system.Answer { return o.Call(http.MethodGet, owned, o.token, "") }},
		{"GET entitlements, session", "200 503 503 200 503 200", func(visit) system.Answer { return o.session.Once(http.MethodGet, owned) }},
		{"POST grants, token", "200 200 200 200 503 200", func(v visit) system.Answer { return o.Grant(v.name, o.user, "item1") }},
		{"POST grants, session", "403 503 503 403 403 403", func(v visit) system.Answer {
			return o.session.Once(http.MethodPost, system.GrantsPath, system.CSRF, "Idempotency-Key: "+v.name, "Content-Type: application/json")
		}},
		{"GET stream, token", "200 200 200 200 503 200", func(visit) system.Answer { return o.opens(system.StreamPath, "Authorization: Bearer "+o.token) }},
		{"GET stream, session", "200 503 503 200 503 200", func(visit) system.Answer { return o.opens(system.StreamPath, "Cookie: miniserver_session="+cookie) }},
		// The same join each time counts as one request.
		{"POST tickets, token", "201 503 503 201 201 201", func(visit) system.Answer { return o.JoinWith(o.token, "casual", "k1", `{}`) }},
		{"GET tickets, token", "200 503 503 200 200 200", func(visit) system.Answer { return o.Call(http.MethodGet, system.TicketListPath, o.token, "") }},
		{"GET stream of a ticket, token", "200 503 503 200 503 200", func(visit) system.Answer { return o.opens(system.FollowPath(ticket), "Authorization: Bearer "+o.token) }},
		{"GET /login", "303 503 503 303 303 303", func(visit) system.Answer { return o.Person().Once(http.MethodGet, "/login") }},
		{comeBack, "303 503 503 503 503 303", func(v visit) system.Answer { return v.arriving.Once(http.MethodGet, v.callback) }},
		{signOut, "204 503 503 204 204 204", func(v visit) system.Answer { return v.leaving.Once(http.MethodPost, "/logout", system.CSRF) }},
		{"GET /", "200 200 200 200 200 200", func(visit) system.Answer { return o.Call(http.MethodGet, "/", "", "") }},
		{"GET /health/readiness", "200 200 200 200 200 200", func(visit) system.Answer { return o.Call(http.MethodGet, "/health/readiness", "", "") }},
	}
	nulls := func(name string, a system.Answer) bool {
		return strings.Contains(name, "overview") && a.Status == http.StatusOK && len(a.JSON(t)["errors"].(map[string]any)) > 0
	}
	table := make([]string, len(rows))
	column := func(n int, v visit) {
		t.Helper()
		leaving := v.leaving.Cookie()
		answers, took := make([]system.Answer, len(rows)), make([]time.Duration, len(rows))
		system.AtOnce(len(rows), func(i int) {
			began := time.Now()
			answers[i] = rows[i].ask(v)
			took[i] = time.Since(began)
		})
		for i, a := range answers {
			got := fmt.Sprint(a.Status)
			if nulls(rows[i].name, a) {
				got += "-"
			}
			table[i] += fmt.Sprintf("  %-4s %4d ms", got, took[i].Milliseconds())
			if want := strings.Fields(rows[i].want)[n]; got != want {
				t.Errorf("%s: %s answered %s, want %s: %s", v.name, rows[i].name, got, want, a.Body)
			}
			if a.Status >= http.StatusInternalServerError {
				system.WantAway(t, a)
			}
			if took[i] > 5*time.Second {
				t.Errorf("%s: %s took %s", v.name, rows[i].name, took[i])
			}
		}
		if o.session.Cookie() != cookie {
			t.Errorf("%s: the session's cookie is lost", v.name)
		}
		// A failed sign-out leaves the session, and can be repeated.
		if now := v.leaving.Cookie(); now != "" && now != leaving {
			t.Errorf("%s: after a failed sign-out the cookie is %q", v.name, now)
		}
		if !stream.Open() {
			t.Fatalf("%s: the stream has ended: %v", v.name, stream.End)
		}
	}
	column(0, o.visit("all there"))
	for n, outage := range []struct {
		name       string
		away, back func()
	}{
		{"Redis is stopped", func() { toRedis.Cut(); kit.Must(t, redis.Stop()) }, func() {
			kit.Pause(1200 * time.Millisecond) // open streams check their session twice a second
			redis = kit.StartRedis(t, redisDir)
			toRedis.Mend()
		}},
		{"Redis hangs", toRedis.Hang, toRedis.Mend},
		{"the issuer is away", toIssuer.Cut, toIssuer.Mend},
		{"Postgres is away", toPostgres.Cut, toPostgres.Mend},
		{"NATS is away", func() { kit.Must(t, nats.Stop()) }, func() {
			again, err := natsserver.Start(t.Context(), natsserver.Options{Dir: natsDir})
			kit.Must(t, err)
			nats = again
		}},
	} {
		v := o.visit(outage.name)
		outage.away()
		column(n+1, v)
		outage.back()
		began := time.Now()
		for _, row := range rows {
			if row.name == signOut || row.name == comeBack {
				continue // it can only be done once
			}
			kit.Eventually(t, outage.name+", and back: "+row.name, func() bool {
				a := row.ask(v)
				if a.Status == http.StatusUnauthorized {
					t.Fatalf("%s: answered %d %s after the outage", row.name, a.Status, a.Body)
				}
				return fmt.Sprint(a.Status) == strings.Fields(row.want)[0] && !nulls(row.name, a)
			})
		}
		if v.leaving.Cookie() != "" {
			system.WantStatus(t, v.leaving.Once(http.MethodPost, "/logout", system.CSRF), http.StatusNoContent)
		}
		t.Logf("%s: all was back after %s", outage.name, time.Since(began).Round(time.Millisecond))
	}
	// What was granted meanwhile is delivered to the stream that stayed open.
	for _, function := range []string{"relay", "notify", "deliver"} {
		kit.Eventually(t, function, func() bool { return o.TryTick(function) == http.StatusOK })
	}
	kit.Eventually(t, "all grants are delivered", func() bool {
		for _, function := range []string{"relay", "notify", "deliver"} {
			o.TryTick(function)
		}
		return len(stream.Got()) == 6
	})
	for i, line := range table {
		t.Logf("%-30s %s", rows[i].name, line)
	}
}
