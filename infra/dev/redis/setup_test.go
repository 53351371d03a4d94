package redis

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/infra/dev/servertest"
)

func TestMain(m *testing.M) {
	os.Exit(servertest.Main(m, func(_, dir string) error {
		programs, err := servertest.Programs()
		if err != nil {
			return err
		}
		r, err := Start(context.Background(), Options{Dir: dir, Binaries: programs})
		if err != nil {
			return err
		}
		servertest.Serve(r.running.Process.Pid, r.URL())
		return nil
	}))
}

func started(t *testing.T, dir string) *Server {
	t.Helper()
	r, err := Start(servertest.Context(t), Options{Dir: dir, Binaries: servertest.Binaries(t)})
	return servertest.Started(t, r, err)
}

func client(t *testing.T, r *Server) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}
