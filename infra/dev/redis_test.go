package dev

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestRedisKeepsDataPasswordAndPort(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(serverDir(t), `with "quotes" and spaces`)
	r := startRedis(t, dir)
	url := r.URL()
	if err := redisClient(t, r).Set(t.Context(), "kept", "7", 0).Err(); err != nil {
		t.Fatal(err)
	}
	stop(t, r)
	if left := processesOf(dir); left != nil {
		t.Fatalf("left running: %v", left)
	}
	stop(t, r)
	r = startRedis(t, dir)
	if r.URL() != url {
		t.Errorf("URL changed from %s to %s", url, r.URL())
	}
	if got, err := redisClient(t, r).Get(t.Context(), "kept").Result(); err != nil || got != "7" {
		t.Errorf("kept = %s, %v", got, err)
	}
	stop(t, r)
}

func TestRedisAsksForThePassword(t *testing.T) {
	t.Parallel()
	r := startRedis(t, serverDir(t))
	c := redis.NewClient(&redis.Options{Addr: hostPort(r.port)})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Error("answered without a password")
	}
	if info, err := os.Stat(r.file(".conf")); err != nil || info.Mode().Perm() != privateFileMode {
		t.Errorf("configuration file: %v, %v", info, err)
	}
	stop(t, r)
}

func TestLargeLogIsEmptied(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	stop(t, startRedis(t, dir))
	log := filepath.Join(dir, "redis.log")
	if err := os.Truncate(log, logLimitBytes+1); err != nil {
		t.Fatal(err)
	}
	stop(t, startRedis(t, dir))
	if info, err := os.Stat(log); err != nil || info.Size() == 0 || info.Size() > logLimitBytes {
		t.Errorf("log after start: %v, %v", info.Size(), err)
	}
}
