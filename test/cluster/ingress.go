package cluster

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// Ingress stands for the cluster's DNS and Knative's gateway: clients that use it as
// HTTP_PROXY reach functions by their cluster names. A function that is not open is
// answered 503, like one without pods.
type Ingress struct {
	URL string

	mu        sync.Mutex
	functions map[string]*httputil.ReverseProxy
	requests  map[string][]*http.Request
}

// NewIngress starts an Ingress that ends with the test.
func NewIngress(t testing.TB) *Ingress {
	in := &Ingress{functions: map[string]*httputil.ReverseProxy{}, requests: map[string][]*http.Request{}}
	server := httptest.NewServer(in)
	t.Cleanup(server.Close)
	in.URL = server.URL
	return in
}

// Open forwards a function's requests to a process.
func (in *Ingress) Open(function string, to *url.URL) {
	in.mu.Lock()
	defer in.mu.Unlock()
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusBadGateway) // the ticking client logs it
	}
	in.functions[function] = proxy
}

// Ticks returns the events that came for a function, answered or not; a repeated one
// counts once.
func (in *Ingress) Ticks(function string) []*http.Request {
	in.mu.Lock()
	defer in.mu.Unlock()
	seen := map[string]bool{}
	var ticks []*http.Request
	for _, r := range in.requests[function] {
		if id := r.Header.Get("Ce-Id"); !seen[id] {
			seen[id] = true
			ticks = append(ticks, r)
		}
	}
	return ticks
}

func (in *Ingress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	function := strings.TrimSuffix(r.URL.Host, ".miniserver.svc.cluster.local")
	in.mu.Lock()
	to := in.functions[function]
	in.requests[function] = append(in.requests[function], r.Clone(r.Context()))
	in.mu.Unlock()
	if to == nil {
		http.Error(w, "no pods", http.StatusServiceUnavailable)
		return
	}
	to.ServeHTTP(w, r)
}
