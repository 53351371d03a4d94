package postgres

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/infra/dev/servertest"
)

func TestPostgresKeepsDataPasswordAndPort(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	p := started(t, dir)
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
	if group, err := syscall.Getpgid(p.running.Process.Pid); err != nil || group == syscall.Getpgrp() {
		t.Errorf("process group %d, %v: Ctrl-C would reach it", group, err)
	}
	if got := query(t, url, "SELECT upper('é')"); got != "É" {
		t.Errorf("upper('é') = %s", got)
	}
	servertest.Stop(t, p)
	if left := servertest.ProcessesOf(dir); left != nil {
		t.Fatalf("left running: %v", left)
	}
	servertest.Stop(t, p)

	p = started(t, dir)
	if p.URL() != url {
		t.Errorf("URL changed from %s to %s", url, p.URL())
	}
	if got := query(t, p.URL(), "SELECT n::text FROM kept"); got != "7" {
		t.Errorf("kept = %s", got)
	}
}

func TestPostgresAsksForThePassword(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	p := started(t, dir)
	conn, err := pgx.Connect(servertest.Context(t), strings.Replace(p.URL(), p.password, "wrong", 1))
	if err == nil {
		conn.Close(t.Context())
		t.Error("connected with a wrong password")
	}
	info, err := os.Stat(filepath.Join(dir, home.PasswordFile))
	if err != nil || info.Mode().Perm() != home.PrivateFile {
		t.Errorf("password file: %v, %v", info.Mode(), err)
	}
}

func TestPostgresDurable(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	o := Options{Dir: dir, Binaries: servertest.Binaries(t), Durable: true}
	p, err := Start(servertest.Context(t), o)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Stop()
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := query(t, p.URL(), "SHOW "+setting); got != "on" {
			t.Errorf("%s = %s, want on", setting, got)
		}
	}
	o.Durable = false
	if _, err := Start(servertest.Context(t), o); !errors.Is(err, proc.ErrInUse) {
		t.Errorf("started with other options while in use: %v", err)
	}
	servertest.Stop(t, p)
	leftDurably, err := Start(servertest.Context(t), o)
	if err != nil {
		t.Fatal(err)
	}
	servertest.Stop(t, leftDurably)
}

// A process that is killed leaves no server behind, and no damage.
func TestServerEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	by, pid, _ := servertest.Serving(t, "share", dir)
	servertest.Kill(by)
	servertest.WantGone(t, pid)
	p := started(t, dir)
	query(t, p.URL(), "SELECT 'x'")
	servertest.Stop(t, p)
	printed, err := os.ReadFile(filepath.Join(dir, "postgres.log"))
	if err != nil || strings.Contains(string(printed), "was not properly shut down") {
		t.Errorf("PostgreSQL was not shut down: %v\n%s", err, printed)
	}
}

func TestSharedServerEndsWithItsLastProcess(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	first, pid, url := servertest.Serving(t, "share", dir)
	last, same, _ := servertest.Serving(t, "share", dir)
	if same != pid {
		t.Fatalf("two servers, %d and %d, on one directory", pid, same)
	}
	servertest.Kill(first)
	for range 20 {
		query(t, url, "SELECT 'x'")
	}
	servertest.Kill(last)
	servertest.WantGone(t, append(servertest.ProcessesOf(dir), pid)...)
}

func TestServerThatHangsIsReplaced(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	by, pid, _ := servertest.Serving(t, "share", dir)
	users, err := proc.Share(servertest.Context(t), filepath.Join(dir, name+proc.UsersSuffix))
	if err != nil {
		t.Fatal(err)
	}
	servertest.Kill(by) // continues stopped processes of the watcher's group, so stop the server after it
	syscall.Kill(pid, syscall.SIGSTOP)
	users.Close()
	p := started(t, dir)
	if servertest.Alive(pid) {
		t.Error("the hanging server was not ended")
	}
	query(t, p.URL(), "SELECT 'x'")
	servertest.Stop(t, p)
}

func TestRecycledPIDIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	p := started(t, dir)
	servertest.Stop(t, p)
	// The worst case for PostgreSQL is a process of its own user.
	other := servertest.Sleeper(t, p.account.Credential())
	pidFile := strings.Join([]string{strconv.Itoa(other), p.data, "1", strconv.Itoa(p.port), "", proc.Loopback, "0 0", "ready", ""}, "\n")
	path := filepath.Join(p.data, pidFileName)
	if err := errors.Join(os.WriteFile(path, []byte(pidFile), home.PrivateFile), p.account.Own(path)); err != nil {
		t.Fatal(err)
	}
	p = started(t, dir)
	servertest.Stop(t, p)
	if !servertest.Alive(other) {
		t.Error("killed another program")
	}
}

func TestServersAreShared(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	first, second := started(t, dir), started(t, dir)
	if first.URL() != second.URL() {
		t.Error("two servers on one directory")
	}
	servertest.Stop(t, first)
	query(t, second.URL(), "SELECT 'x'")
	if err := home.Remove(dir); !errors.Is(err, proc.ErrInUse) {
		t.Errorf("Remove of a directory in use: %v", err)
	}
	servertest.Stop(t, second)
}

func TestTakenPortIsAvoided(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	p := started(t, dir)
	port := p.port
	servertest.Stop(t, p)
	l, err := net.Listen("tcp", proc.Address(port))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	// Also when only bind finds the port taken, not FreePort. Without a user its watcher
	// would end the server before it tries.
	if p.users, err = p.share(servertest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if err := p.run(servertest.Context(t), Options{Binaries: servertest.Binaries(t)}); !errors.Is(err, proc.ErrPortTaken) {
		t.Errorf("on a taken port: %v, want ErrPortTaken", err)
	}
	p.users.Close()
	p = started(t, dir)
	if p.port == port {
		t.Error("started on a taken port")
	}
	servertest.Stop(t, p)
}

func TestInterruptedInitdbIsRepeated(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	servertest.Binaries(t) // before Helper's timeout starts
	cmd := servertest.Helper(t, "share", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	partial := func() []string {
		inside, _ := filepath.Glob(filepath.Join(dir, initPrefix+"*", home.DataName, "*"))
		outside, _ := filepath.Glob(filepath.Join(home.Outside(dir), initPrefix+"*", home.DataName, "*"))
		return append(inside, outside...)
	}
	for ctx := servertest.Context(t); len(partial()) == 0; {
		if err := proc.Sleep(ctx, time.Millisecond); err != nil {
			t.Fatal("initdb does not begin")
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	p := started(t, dir)
	query(t, p.URL(), "SELECT 'x'")
	servertest.Stop(t, p)
}

func TestPostgresCancelled(t *testing.T) {
	t.Parallel()
	dir, b := servertest.Dir(t), servertest.Binaries(t)
	ctx, cancel := context.WithTimeout(servertest.Context(t), 300*time.Millisecond)
	defer cancel()
	if _, err := Start(ctx, Options{Dir: dir, Binaries: b}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start within 300 ms: %v, want DeadlineExceeded", err)
	}
	if left := servertest.ProcessesOf(dir); left != nil {
		t.Errorf("left running: %v", left)
	}
}

func TestPostgresSaysWhyItDoesNotStart(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	p := started(t, dir)
	servertest.Stop(t, p)
	if err := os.Remove(filepath.Join(p.data, "global", "pg_control")); err != nil {
		t.Fatal(err)
	}
	_, err := Start(servertest.Context(t), Options{Dir: dir, Binaries: servertest.Binaries(t)})
	if !errors.Is(err, proc.ErrExited) || !strings.Contains(err.Error(), "pg_control") || !strings.Contains(err.Error(), "delete") {
		t.Errorf("unhelpful error: %v", err)
	}
}

func TestPostgresWaitsForProcessesOfAKilledOne(t *testing.T) {
	t.Parallel()
	dir := servertest.Dir(t)
	p := started(t, dir)
	conn, err := pgx.Connect(servertest.Context(t), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	ctx := servertest.Context(t)
	go func() { _, _ = conn.Exec(ctx, "SELECT count(*) FROM generate_series(1, 8000000)") }()
	for deadline := time.Now().Add(10 * time.Second); query(t, p.URL(), "SELECT count(*)::text FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND state = 'active' AND pid <> pg_backend_pid()") != "1"; {
		if time.Now().After(deadline) {
			t.Fatal("the query does not run")
		}
	}
	if err := p.running.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Stop()
	again := started(t, dir)
	if got := query(t, again.URL(), "SELECT 'x'"); got != "x" {
		t.Errorf("it answered %q, want x", got)
	}
	servertest.Stop(t, again)
}
