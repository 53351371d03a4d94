package dev

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestPostgresKeepsDataPasswordAndPort(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	p := startPostgres(t, dir)
	url := p.URL()
	if err := p.exec(t.Context(), databaseName, "CREATE TABLE kept AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{
		"server_encoding": "UTF8", "listen_addresses": "127.0.0.1", "unix_socket_directories": "",
		"max_connections": "200", "fsync": "off", "jit": "off",
	} {
		if got := query(t, url, "SELECT current_setting('"+setting+"')"); got != want {
			t.Errorf("%s = %q, want %q", setting, got, want)
		}
	}
	if group, err := syscall.Getpgid(p.proc.handle.Pid); err != nil || group == syscall.Getpgrp() {
		t.Errorf("process group %d, %v: Ctrl-C would reach it", group, err)
	}
	if got := query(t, url, "SELECT upper('é')"); got != "É" {
		t.Errorf("upper('é') = %s", got)
	}
	stop(t, p)
	if left := processesOf(dir); left != nil {
		t.Fatalf("left running: %v", left)
	}
	stop(t, p)

	p = startPostgres(t, dir)
	if p.URL() != url {
		t.Errorf("URL changed from %s to %s", url, p.URL())
	}
	if got := query(t, p.URL(), "SELECT n::text FROM kept"); got != "7" {
		t.Errorf("kept = %s", got)
	}
}

func TestPostgresAsksForThePassword(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	p := startPostgres(t, dir)
	conn, err := pgx.Connect(testContext(t), strings.Replace(p.URL(), p.password, "wrong", 1))
	if err == nil {
		conn.Close(t.Context())
		t.Error("connected with a wrong password")
	}
	info, err := os.Stat(filepath.Join(dir, passwordFile))
	if err != nil || info.Mode().Perm() != privateFileMode {
		t.Errorf("password file: %v, %v", info.Mode(), err)
	}
}

func TestPostgresDurable(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	o := PostgresOptions{Dir: dir, Binaries: binaries(t), Durable: true}
	p, err := StartPostgres(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := query(t, p.URL(), "SHOW "+setting); got != "on" {
			t.Errorf("%s = %s", setting, got)
		}
	}
	o.Durable = false
	if _, err := StartPostgres(testContext(t), o); !errors.Is(err, ErrInUse) {
		t.Errorf("started otherwise while in use: %v", err)
	}
	stop(t, p)
	leftDurably, err := StartPostgres(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	stop(t, leftDurably)
}

// A process that is killed leaves no server behind, and no damage.
func TestServersEndWithTheirProcess(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	by, postgresPID, redisPID, _ := serving(t, "serve", dir)
	kill(by)
	wantGone(t, postgresPID, redisPID)
	p, r := startPostgres(t, dir), startRedis(t, dir)
	query(t, p.URL(), "SELECT 'x'")
	stop(t, p)
	stop(t, r)
	printed, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
	if err != nil || strings.Contains(string(printed), "was not properly shut down") {
		t.Errorf("PostgreSQL was cut off: %v\n%s", err, printed)
	}
}

// Of the processes that share a server the one that started it may be killed; the
// server ends with the last one.
func TestSharedServerEndsWithItsLastProcess(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	first, pid, _, url := serving(t, "share", dir)
	last, same, _, _ := serving(t, "share", dir)
	if same != pid {
		t.Fatalf("two servers, %d and %d, on one directory", pid, same)
	}
	kill(first)
	for range 20 {
		query(t, url, "SELECT 'x'")
	}
	kill(last)
	wantGone(t, append(processesOf(dir), pid)...)
}

// A server that hangs holds nobody up who comes after its last process.
func TestServerThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	by, pid, _, _ := serving(t, "share", dir)
	users, err := share(testContext(t), filepath.Join(dir, postgresName+usersSuffix))
	if err != nil {
		t.Fatal(err)
	}
	kill(by) // which continues what was stopped of its watcher's group, so stop it after
	syscall.Kill(pid, syscall.SIGSTOP)
	users.close()
	p := startPostgres(t, dir)
	if alive(pid) {
		t.Error("the hanging server was not ended")
	}
	query(t, p.URL(), "SELECT 'x'")
	stop(t, p)
}

func TestRecycledPIDsAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	p, r := startPostgres(t, dir), startRedis(t, dir)
	stop(t, p)
	stop(t, r)
	other := exec.Command("sleep", "100")
	// The worst case for PostgreSQL is a process of its own user.
	other.SysProcAttr = &syscall.SysProcAttr{Credential: p.account.credential()}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer other.Wait()
	defer other.Process.Kill()
	pid := strconv.Itoa(other.Process.Pid)
	pidFile := strings.Join([]string{pid, p.data, "1", strconv.Itoa(p.port), "", loopback, "0 0", "ready", ""}, "\n")
	for path, text := range map[string]string{filepath.Join(p.data, "postmaster.pid"): pidFile, r.file(".pid"): pid + "\n"} {
		if err := os.WriteFile(path, []byte(text), privateFileMode); err != nil {
			t.Fatal(err)
		}
		if err := p.account.own(path); err != nil {
			t.Fatal(err)
		}
	}
	p, r = startPostgres(t, dir), startRedis(t, dir)
	stop(t, p)
	stop(t, r)
	if !alive(other.Process.Pid) {
		t.Error("killed another program")
	}
}

func TestServersAreShared(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	first, second := startPostgres(t, dir), startPostgres(t, dir)
	if first.URL() != second.URL() {
		t.Error("two servers on one directory")
	}
	stop(t, first)
	query(t, second.URL(), "SELECT 'x'")
	if err := Remove(dir); !errors.Is(err, ErrInUse) {
		t.Errorf("Remove of a directory in use: %v", err)
	}
	stop(t, second)
}

func TestTakenPortIsAvoided(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	p, r := startPostgres(t, dir), startRedis(t, dir)
	ports := []int{p.port, r.port}
	stop(t, p)
	stop(t, r)
	for _, port := range ports {
		l, err := net.Listen("tcp", hostPort(port))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	// Not only when FreePort sees it: also when bind finds out.
	for i, run := range []func(context.Context) error{
		func(ctx context.Context) error { return p.run(ctx, PostgresOptions{Binaries: binaries(t)}) },
		func(ctx context.Context) error { return r.run(ctx, RedisOptions{Binaries: binaries(t)}) },
	} {
		if err := run(testContext(t)); !errors.Is(err, errPortTaken) {
			t.Errorf("server %d on a taken port: %v", i, err)
		}
	}
	p, r = startPostgres(t, dir), startRedis(t, dir)
	if p.port == ports[0] || r.port == ports[1] {
		t.Error("started on a taken port")
	}
	stop(t, p)
	stop(t, r)
}

func TestInterruptedInitdbIsRepeated(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	cmd := helper(t, "serve", dir, binaries(t))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	partial := func() []string {
		inside, _ := filepath.Glob(filepath.Join(dir, initPrefix+"*", dataName, "*"))
		outside, _ := filepath.Glob(filepath.Join(outsideHome(dir, ""), initPrefix+"*", dataName, "*"))
		return append(inside, outside...)
	}
	for ctx := testContext(t); len(partial()) == 0; {
		if err := sleep(ctx, time.Millisecond); err != nil {
			t.Fatal("initdb does not begin")
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	p := startPostgres(t, dir)
	query(t, p.URL(), "SELECT 'x'")
	stop(t, p)
}

func TestPostgresCancelled(t *testing.T) {
	t.Parallel()
	dir, b := serverDir(t), binaries(t)
	ctx, cancel := context.WithTimeout(testContext(t), 300*time.Millisecond)
	defer cancel()
	if _, err := StartPostgres(ctx, PostgresOptions{Dir: dir, Binaries: b}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start within 300 ms: %v", err)
	}
	if left := processesOf(dir); left != nil {
		t.Errorf("left running: %v", left)
	}
}

func TestPostgresTellsWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	p := startPostgres(t, dir)
	stop(t, p)
	if err := os.Remove(filepath.Join(p.data, "global", "pg_control")); err != nil {
		t.Fatal(err)
	}
	_, err := StartPostgres(testContext(t), PostgresOptions{Dir: dir, Binaries: binaries(t)})
	if !errors.Is(err, errExited) || !strings.Contains(err.Error(), "pg_control") || !strings.Contains(err.Error(), "delete") {
		t.Errorf("unhelpful: %v", err)
	}
}

// A server that was killed leaves processes that notice when they are done with
// what they do. The next one waits for them.
func TestPostgresWaitsForProcessesOfAKilledOne(t *testing.T) {
	t.Parallel()
	dir := serverDir(t)
	p := startPostgres(t, dir)
	conn, err := pgx.Connect(testContext(t), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	go func() { _, _ = conn.Exec(ctx, "SELECT count(*) FROM generate_series(1, 8000000)") }()
	for deadline := time.Now().Add(10 * time.Second); query(t, p.URL(), "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND state = 'active' AND pid <> pg_backend_pid()") != "1"; {
		if time.Now().After(deadline) {
			t.Fatal("the query does not run")
		}
	}
	if err := p.proc.handle.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Stop()
	again := startPostgres(t, dir)
	if got := query(t, again.URL(), "SELECT 'x'"); got != "x" {
		t.Error(got)
	}
	stop(t, again)
}
