//go:build cluster

package kind_test

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/infra/dev/plot"
	"github.com/miniserversystem/miniserver/test/deployed"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// sleeper is a function that scales to zero, with a request that needs it.
type sleeper struct {
	function, method, path, body string
	status                       int // that is wanted
}

var sleepers = []sleeper{
	{"entitlements", http.MethodGet, "/v1/users/u_somebody/entitlements", "", http.StatusOK},
	{"grant", http.MethodPost, system.GrantsPath, system.ChangeBody("u_somebody", "item1", "purchase", "p_1"), http.StatusOK},
	{"revoke", http.MethodPost, system.RevokesPath, system.ChangeBody("u_somebody", "item1", "refund", "p_1"), http.StatusOK},
	{"transfer", http.MethodGet, "/v1/accounts", "", http.StatusOK},
	{"ticket", http.MethodGet, "/v1/matchmaking/tickets/casual_01m8463j3tee4a8wt3vmxpf3tm", "", http.StatusNotFound},
	{"inbox", http.MethodGet, "/v1/me/notifications", "", http.StatusOK},
}

// wake waits until functions that nobody asks have no pod, asks each, once more if it is
// told to, and prints how long the answers took: the pod was scheduled, started and became
// ready meanwhile. It runs before policies are enforced, because their rules for a new pod
// come seconds late on a busy machine.
func (c *cluster) wake(tries int) {
	c.t.Helper()
	// The shortest that Knative allows, so that several tries take minutes and not hours.
	defer c.autoscaler(`{"stable-window": null, "scale-to-zero-grace-period": null, "scale-to-zero-pod-retention-period": null}`)
	c.autoscaler(`{"stable-window": "6s", "scale-to-zero-grace-period": "6s", "scale-to-zero-pod-retention-period": "0s"}`)
	took, again := map[string][]time.Duration{}, map[string]int{}
	for range tries {
		token := c.Token(c.t)
		for _, s := range sleepers {
			kit.Within(c.t, settles, s.function+" has no pod", func() bool { return c.pods(s.function) == 0 })
			began := time.Now()
			if c.ask(token, s) {
				again[s.function]++
			}
			took[s.function] = append(took[s.function], time.Since(began))
			if c.pods(s.function) == 0 {
				c.t.Errorf("%s answers without a pod", s.function)
			}
		}
	}
	for _, s := range sleepers {
		all := took[s.function]
		slices.Sort(all)
		c.Say("  %-12s from zero to the answer: p50 %.1f s, slowest %.1f s of %d; %d were told to ask again", s.function, all[len(all)/2].Seconds(), all[len(all)-1].Seconds(), len(all), again[s.function])
	}
}

// ask sends a sleeper's request, and reports whether it had to be sent again: a pod may take
// longer to start than its function has for an answer, which then says so.
func (c *cluster) ask(token string, s sleeper) (again bool) {
	c.t.Helper()
	key := uuid.NewString()
	status, body, err := c.Do(c.t.Context(), token, s.method, s.path, key, s.body)
	if again = status == http.StatusGatewayTimeout || status == http.StatusServiceUnavailable; again {
		status, body, err = c.Do(c.t.Context(), token, s.method, s.path, key, s.body)
	}
	if err != nil || status != s.status {
		c.t.Errorf("%s is answered %d %s, %v", s.function, status, body, err)
	}
	return again
}

func (c *cluster) autoscaler(data string) {
	c.t.Helper()
	_, err := c.kubectl("--namespace", "knative-serving", "patch", "configmap", "config-autoscaler", "--type", "merge", "--patch", `{"data": `+data+`}`)
	kit.Must(c.t, err)
}

// crowd has 200 clients grant at once, without trying again, and draws how many pods there
// are of the functions that they need, and how many grants are answered.
func (c *cluster) crowd() {
	c.t.Helper()
	const clients, lasts, every = 200, time.Minute, 2 * time.Second
	lines := []plot.Line{{Name: "100 grants/s"}, {Name: "pods of gateway"}, {Name: "pods of grant"}, {Name: "pods of notify"}}
	load := c.Load(c.t, deployed.Grants{Clients: clients})
	began, answered := time.Now(), 0
	for at := began; at.Sub(began) < lasts; {
		kit.Pause(every)
		running := map[string]float64{}
		for _, function := range strings.Fields(c.must("get", "pods", "--field-selector", "status.phase=Running", "--output",
			`jsonpath={range .items[*]}{.metadata.labels.serving\.knative\.dev/service}{"\n"}{end}`)) {
			running[function]++
		}
		now, total := time.Now(), load.Answered()
		rate := float64(total-answered) / now.Sub(at).Seconds()
		at, answered = now, total
		for i, l := range lines {
			y := rate / 100
			if function, ok := strings.CutPrefix(l.Name, "pods of "); ok {
				y = running[function]
			}
			lines[i].Points = append(l.Points, plot.Point{X: now.Sub(began).Seconds(), Y: y})
		}
	}
	granted := c.ended(load)
	for _, l := range lines[1:3] {
		if most := slices.MaxFunc(l.Points, func(a, b plot.Point) int { return cmp.Compare(a.Y, b.Y) }); most.Y < 2 {
			c.t.Errorf("there was one of the %s; more were wanted", l.Name)
		}
	}
	picture := c.file("pods.svg")
	kit.Must(c.t, os.WriteFile(picture, []byte(plot.Plot{
		Title: fmt.Sprintf("%d clients grant at once", clients), X: "seconds", Y: "pods", Linear: true, Lines: lines,
	}.SVG()), 0o644))
	c.Say("%d clients: %d grants, none failed, each with one notification; p50 %s, p99 %s; %s has the pods", clients, granted,
		load.Took(0.5).Round(time.Millisecond), load.Took(0.99).Round(time.Millisecond), picture)
}
