// Package cluster runs a real Kubernetes API server with Knative's real controllers, on
// this machine and without nodes: it shows what a cluster makes of our manifests, and
// runs nothing as a pod. It is for tests.
//
// It is a module of its own, like check, and the servers' versions are in another
// (servers), so that each is built from the versions that it was released with.
package cluster

import (
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Cluster is an API server and its etcd.
type Cluster struct {
	dir, programs string
	url, token    string
	client        *http.Client
	looking       sync.Mutex          // guards resources
	resources     map[string]resource // by apiVersion and kind
	processes     []*Process
}

// Start starts etcd and the API server, from the programs in a folder, on 127.0.0.1
// with their data in the test's own folder. They end with the test.
func Start(t testing.TB, programs string) *Cluster {
	t.Helper()
	dir := t.TempDir()
	pool := keys(t, dir)
	c := &Cluster{
		dir: dir, programs: programs, token: rand.Text(), resources: map[string]resource{},
		client: &http.Client{
			Timeout:   30 * time.Second,
			Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, MaxIdleConnsPerHost: 8},
		},
	}
	store, peers := "http://127.0.0.1:"+freePort(t), "http://127.0.0.1:"+freePort(t)
	c.run(t, "etcd", nil, "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", store, "--advertise-client-urls", store,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers)

	write(t, filepath.Join(dir, "tokens.csv"), fmt.Appendf(nil, "%s,test,test,system:masters\n", c.token))
	port, in := freePort(t), func(name string) string { return filepath.Join(dir, name) }
	c.url = "https://127.0.0.1:" + port
	c.run(t, "kube-apiserver", nil, "--etcd-servers", store,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port", port, "--endpoint-reconciler-type=none",
		"--cert-dir", dir, "--tls-cert-file", in("tls.crt"), "--tls-private-key-file", in("tls.key"),
		"--token-auth-file", in("tokens.csv"), "--authorization-mode=RBAC", "--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file", in("tls.key"), "--service-account-signing-key-file", in("tls.key"),
		"--service-cluster-ip-range=10.96.0.0/16", "--profiling=false")
	Until(t, "the API server", 2*time.Minute, func() error {
		_, err := c.do(http.MethodGet, "/readyz", "", nil)
		return err
	}, c.processes...)
	write(t, in("kubeconfig"), fmt.Appendf(nil, kubeconfig, c.url, in("tls.crt"), c.token))
	return c
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`

// run starts one of the programs.
func (c *Cluster) run(t testing.TB, program string, environment []string, arguments ...string) {
	t.Helper()
	c.processes = append(c.processes, Run(t, c.dir, program, environment, filepath.Join(c.programs, program), arguments...))
}
