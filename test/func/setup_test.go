//go:build func

// Package funccli tests the root package as Knative's func CLI builds and runs it:
// as processes without Docker, and as an OCI image under runc.
package funccli

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/identity"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// within bounds how long a condition may take that needs no build.
const within = 30 * time.Second

// system is the servers of one test, and the settings to connect to them.
type system struct {
	t           testing.TB
	pool        *pgxpool.Pool
	environment []string
	token       string // of the purchase service
}

func setup(t testing.TB) *system {
	t.Helper()
	database := kit.Database(t)
	return &system{
		t: t, pool: kit.Connect(t, database),
		environment: []string{
			"DATABASE_URL=" + database, "NATS_URL=" + kit.NATS(t).URL(), "REDIS_URL=" + kit.Redis(t).URL(),
			"OIDC_ISSUER=" + identity.Issuer(t), "OIDC_CLIENT_SECRET=" + issuer.WebClientSecret,
		},
		token: identity.Token(t, identity.Issuer(t), issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret),
	}
}

// grant sends a grant to the gateway at base, and fails the test unless it succeeds.
func (s *system) grant(base, user, key string) {
	s.t.Helper()
	body := `{"user_id":"` + user + `","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"p_` + key + `"}`
	request, err := http.NewRequest(http.MethodPost, base+"/v1/entitlements/grants", strings.NewReader(body))
	kit.Must(s.t, err)
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Idempotency-Key", key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	kit.Must(s.t, err)
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK || !strings.Contains(string(text), `"ACTIVE"`) {
		s.t.Fatalf("the grant is answered %s %s, want ACTIVE", response.Status, text)
	}
}

// count returns the one number that a query selects.
func (s *system) count(sql string, args ...any) int {
	s.t.Helper()
	var n int
	kit.Must(s.t, s.pool.QueryRow(context.Background(), sql, args...).Scan(&n))
	return n
}

// wantNotified waits until one notification to user was sent.
func (s *system) wantNotified(user string) {
	s.t.Helper()
	kit.Eventually(s.t, "the notification is SENT", func() bool {
		return s.count(`SELECT count(*) FROM notification.notifications WHERE user_id = $1 AND status = 'SENT'`, user) == 1
	})
}

// tree copies the repository into a directory of this test's own, as a clone would: the
// CLI keeps its data in it, and rewrites func.yaml.
func tree(t testing.TB) string {
	t.Helper()
	root, err := kit.Root()
	kit.Must(t, err)
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	kit.Must(t, err)
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		content, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, but not committed yet
		}
		kit.Must(t, err)
		kit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		kit.Must(t, os.WriteFile(filepath.Join(dir, name), content, 0o644))
	}
	return dir
}

func freeAddress(t testing.TB) string {
	t.Helper()
	port, err := proc.FreePort(0)
	kit.Must(t, err)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
