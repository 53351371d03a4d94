//go:build cluster

package kind_test

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/miniserversystem/miniserver/infra/dev/plot"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/test/deployed"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// sleeper is a function that scales to zero, with a request that needs it.
type sleeper struct {
	function, method, path, body string
	status                       int // that is wanted
}

// Those that concern the caller need account, too, which then wakes first.
var sleepers = []sleeper{
	{"account", http.MethodPost, "/v1/me", "", http.StatusOK},
	{"entitlements", http.MethodGet, "/v1/users/u_somebody/entitlements", "", http.StatusOK},
	{"grant", http.MethodPost, system.GrantsPath, system.ChangeBody("u_somebody", "item1", "purchase", "p_1"), http.StatusOK},
	{"revoke", http.MethodPost, system.RevokesPath, system.ChangeBody("u_somebody", "item1", "refund", "p_1"), http.StatusOK},
	{"transfer", http.MethodGet, "/v1/accounts", "", http.StatusOK},
	{"ticket", http.MethodGet, "/v1/matchmaking/tickets/casual_01m8463j3tee4a8wt3vmxpf3tm", "", http.StatusNotFound},
	{"inbox", http.MethodGet, "/v1/me/notifications", "", http.StatusOK},
	{"stream", http.MethodGet, system.StreamPath, "", http.StatusOK},
}

// byTick are the workers that sleep between two ticks; those that are ticked more often
// than once a minute have no time to.
var byTick = []string{"reconcile", "cleanup"}

// wake waits until functions that nobody asks have no pod, asks each, once more if it is
// told to, and prints how long the answers took and the pods meanwhile. It runs before
// policies are enforced, because their rules for a new pod come seconds late on a busy
// machine.
func (c *cluster) wake(tries int) {
	c.t.Helper()
	// The shortest that Knative allows, so that several tries take minutes and not hours.
	defer c.autoscaler(`{"stable-window": null, "scale-to-zero-grace-period": null, "scale-to-zero-pod-retention-period": null}`)
	c.autoscaler(`{"stable-window": "6s", "scale-to-zero-grace-period": "6s", "scale-to-zero-pod-retention-period": "0s"}`)
	type try struct{ began, ended time.Time }
	asked, again := map[string][]try{}, map[string]int{}
	stop := c.watchPods()
	for range tries {
		token := c.Token(c.t)
		for _, s := range sleepers {
			kit.Within(c.t, settles, s.function+" has no pod", func() bool { return c.pods(s.function) == 0 })
			began := time.Now()
			if c.ask(token, s) {
				again[s.function]++
			}
			asked[s.function] = append(asked[s.function], try{began, time.Now()})
		}
	}
	pods := stop()
	c.Say("  from zero, p50 and slowest of %d: the pod is made, its container runs, it is ready, the answer; told to ask again", tries)
	for _, s := range sleepers {
		var made, ran, ready, answered []time.Duration
		for _, t := range asked[s.function] {
			n := slices.IndexFunc(pods, func(p *podStart) bool {
				return p.function == s.function && p.made.After(t.began) && p.made.Before(t.ended)
			})
			if n < 0 {
				c.t.Errorf("%s answers without a pod that began", s.function)
				continue
			}
			p := pods[n]
			made, answered = append(made, p.made.Sub(t.began)), append(answered, t.ended.Sub(t.began))
			if !p.ran.IsZero() && !p.ready.IsZero() { // else another pod answered before it
				ran, ready = append(ran, p.ran.Sub(p.made)), append(ready, p.ready.Sub(p.ran))
			}
		}
		c.Say("  %-12s made %s, runs after %s more, ready after %s more; answered %s; %d", s.function, spread(made), spread(ran), spread(ready), spread(answered), again[s.function])
	}
	for _, function := range byTick {
		var took []time.Duration
		for _, p := range pods {
			if p.function == function && !p.ready.IsZero() {
				took = append(took, p.ready.Sub(p.made))
			}
		}
		if len(took) < 2 {
			c.t.Errorf("ticks woke %s %d times", function, len(took))
		}
		c.Say("  %-12s woken by ticks %d times, ready %s after its pod was made", function, len(took), spread(took))
	}
}

// spread is the median and the longest.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "never"
	}
	slices.Sort(all)
	return fmt.Sprintf("%.1f, %.1f s", all[len(all)/2].Seconds(), all[len(all)-1].Seconds())
}

// podStart is when kubectl told of a function's new pod.
type podStart struct {
	function         string
	made, ran, ready time.Time // zero if not yet
}

// watchPods notes the pods of functions that begin until stop, in their order.
func (c *cluster) watchPods() (stop func() []*podStart) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	command := proc.Command(ctx, c.file("bin", "kubectl"), "--context", "kind-miniserver", "--namespace", namespace,
		"get", "pods", "--selector", "serving.knative.dev/service", "--watch-only", "--output",
		`jsonpath={.metadata.name}|{.metadata.labels.serving\.knative\.dev/service}|{.status.containerStatuses[?(@.name=="function")].state.running.startedAt}|{.status.conditions[?(@.type=="Ready")].status}{"\n"}`)
	command.Env = c.environment()
	output, err := command.StdoutPipe()
	kit.Must(c.t, err)
	kit.Must(c.t, command.Start())
	var all []*podStart
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		known := map[string]*podStart{}
		for lines := bufio.NewScanner(output); lines.Scan(); {
			now, told := time.Now(), strings.Split(lines.Text(), "|")
			if len(told) != 4 {
				continue
			}
			p := known[told[0]]
			if p == nil {
				p = &podStart{function: told[1], made: now}
				if told[3] == "" { // others were there before
					all = append(all, p)
				}
				known[told[0]] = p
			}
			if p.ran.IsZero() && told[2] != "" {
				p.ran = now
			}
			if p.ready.IsZero() && told[3] == "True" {
				p.ready = now
			}
		}
	}()
	end := sync.OnceValue(func() []*podStart {
		cancel()
		<-ended
		_ = command.Wait()
		return all
	})
	c.t.Cleanup(func() { end() })
	return end
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
