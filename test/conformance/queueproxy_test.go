//go:build conformance && linux

package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

const (
	// The addresses in a pod; queue-proxy's own cannot be changed.
	userAddress  = "127.0.0.1:8080"
	queueAddress = "127.0.0.1:8012"
	adminAddress = "127.0.0.1:8022"
	// queueQuiet is how long queue-proxy waits for late requests before it lets the
	// function's container end.
	queueQuiet = 30 * time.Second
)

// pod is a function's container and queue-proxy, in a network namespace.
type pod struct {
	*namespace
	queue, function *program.Program
}

// podSettings are a Service's settings for its pods.
type podSettings struct {
	concurrency int
	timeout     time.Duration
}

// startPod starts what Knative's controller would put into the function's pod.
func startPod(t testing.TB, n *namespace, environment map[string]string, s podSettings) *pod {
	t.Helper()
	root, err := kit.Root()
	kit.Must(t, err)
	serve := program.Build(t, root, "./infra/miniserver")
	proxy := program.Build(t, filepath.Join(root, "test/conformance/queueproxy"), "knative.dev/serving/cmd/queue")
	for _, name := range []string{"DATABASE_URL", "NATS_URL", "REDIS_URL", "OIDC_ISSUER"} {
		u, err := url.Parse(environment[name])
		kit.Must(t, err)
		n.forward(t, u.Host, func() (net.Conn, error) { return net.Dial("tcp", u.Host) })
	}
	p := &pod{namespace: n}
	n.do(func() {
		p.function = startProgram(t, serve, with(environment, "PORT", "8080", "K_SERVICE", environment["FUNCTION"]))
		p.queue = startProgram(t, proxy, map[string]string{
			"QUEUE_SERVING_PORT": "8012", "QUEUE_SERVING_TLS_PORT": "8112", "USER_PORT": "8080",
			"CONTAINER_CONCURRENCY": strconv.Itoa(s.concurrency), "REVISION_TIMEOUT_SECONDS": strconv.Itoa(int(s.timeout.Seconds())),
			"SERVING_READINESS_PROBE": `{"httpGet":{"path":"` + fn.ReadinessPath + `","port":8080,"host":"127.0.0.1","scheme":"HTTP"},"periodSeconds":1,"successThreshold":1}`,
			"SERVING_LOGGING_CONFIG":  "", "SERVING_LOGGING_LEVEL": "", "SERVING_NAMESPACE": "miniserver", "SERVING_SERVICE": environment["FUNCTION"],
			"SERVING_CONFIGURATION": environment["FUNCTION"], "SERVING_REVISION": environment["FUNCTION"] + "-00001",
			"SERVING_POD": environment["FUNCTION"] + "-00001-x", "SERVING_POD_IP": "127.0.0.1",
		})
	})
	return p
}

// send sends a request to one of the pod's addresses.
func (p *pod) send(r *http.Request, address string) (*http.Response, error) {
	transport := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return p.dial(address) },
	}
	r.URL.Scheme, r.URL.Host = "http", address
	return transport.RoundTrip(r)
}

func (p *pod) ask(method, address, path string, within time.Duration, header http.Header) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	r.Header = header
	response, err := p.send(r, address)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// terminate does what the kubelet does: both containers get SIGTERM, the function's after
// its preStop hook, which returns when queue-proxy is done.
func (p *pod) terminate() {
	p.queue.Terminate()
	go func() {
		_, _, _ = p.ask(http.MethodGet, adminAddress, "/wait-for-drain", 3*queueQuiet, http.Header{})
		p.function.Terminate()
	}()
}

// onKnative is a pod for each function.
type onKnative map[string]*pod

var _ Instance = onKnative{}

// startPods starts for each function the pod that its Service describes; change may alter
// it.
func startPods(change func(function string, s *podSettings)) func(testing.TB, map[string]string, ...string) Instance {
	return func(t testing.TB, environment map[string]string, names ...string) Instance {
		t.Helper()
		pods, networks, where := onKnative{}, map[string]*namespace{}, ""
		for _, name := range names {
			networks[name] = newNamespace(t)
		}
		for _, name := range names[1:] {
			address := onLoopback(FreePort(t))
			where += "," + name + "=http://" + address
			networks[names[0]].forward(t, address, func() (net.Conn, error) { return networks[name].dial(queueAddress) })
		}
		for _, name := range names {
			f, err := functions.Named(name)
			kit.Must(t, err)
			own := with(environment, "FUNCTION", name, "FUNCTION_URL", strings.TrimPrefix(where, ","))
			s := podSettings{f.Concurrency, f.Timeout}
			if change != nil {
				change(name, &s)
			}
			pods[name] = startPod(t, networks[name], own, s)
		}
		return pods
	}
}

func (k onKnative) RoundTrip(r *http.Request) (*http.Response, error) {
	return k[functions.GatewayName].send(r, queueAddress)
}

// Probe probes as the kubelet does: liveness at the function's container, readiness at
// queue-proxy.
func (k onKnative) Probe(probe Probe) (worst int, err error) {
	for _, p := range k {
		address, path, header := userAddress, fn.LivenessPath, http.Header{"User-Agent": {"kube-probe/1.33"}}
		if probe == Readiness {
			address, path = queueAddress, "/"
			header.Set("K-Network-Probe", "queue")
		}
		status, _, err := p.ask(http.MethodGet, address, path, probeWithin, header)
		if err != nil {
			return 0, err
		}
		worst = max(worst, status)
	}
	return worst, nil
}

// Tick posts what a PingSource posts.
func (k onKnative) Tick(function string) error {
	status, body, err := k[function].ask(http.MethodPost, queueAddress, tick.Path, callWithin, http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"/apis/v1/namespaces/miniserver/pingsources/" + function},
		"Ce-Type": {"dev.knative.sources.ping"}, "Content-Type": {"application/json"},
	})
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("tick of %s: %d %s", function, status, body)
	}
	return err
}

func (k onKnative) Addresses() []string { return nil }

func (k onKnative) Terminate() {
	for _, p := range k {
		p.terminate()
	}
}

func (k onKnative) Wait(within time.Duration) error {
	var errs []error
	deadline := time.Now().Add(within)
	for _, p := range k {
		errs = append(errs, p.function.Wait(time.Until(deadline)), p.queue.Wait(time.Until(deadline)))
	}
	return errors.Join(errs...)
}

const ownContainer = "it is the program in the function's container, as in the column processes"

func onQueueProxy(change func(string, *podSettings)) Adapter {
	return Adapter{
		Name: "queue-proxy", Ticked: true, Start: startPods(change), Quiet: queueQuiet,
		Without: map[string]string{"unknown FUNCTION": ownContainer, "malformed setting": ownContainer},
	}
}

// Knative's queue-proxy in front of each function.
func TestQueueProxy(t *testing.T) {
	t.Parallel()
	newNamespace(t) // skips the whole test where it is not permitted
	Run(t, onQueueProxy(nil))
}
