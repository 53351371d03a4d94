package postgres

import (
	"context"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/infra/dev/servertest"
)

func TestMain(m *testing.M) {
	os.Exit(servertest.Main(m, func(_, dir string) error {
		programs, err := servertest.Programs()
		if err != nil {
			return err
		}
		p, err := Start(context.Background(), Options{Dir: dir, Binaries: programs})
		if err != nil {
			return err
		}
		servertest.Serve(p.running.Process.Pid, p.URL())
		return nil
	}))
}

func started(t *testing.T, dir string) *Server {
	t.Helper()
	p, err := Start(servertest.Context(t), Options{Dir: dir, Binaries: servertest.Binaries(t)})
	return servertest.Started(t, p, err)
}

// query runs a statement that returns one value.
func query(t *testing.T, url, statement string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var s string
	if err := conn.QueryRow(t.Context(), statement).Scan(&s); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return s
}
