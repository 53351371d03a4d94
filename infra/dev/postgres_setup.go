package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	initTimeout = 2 * time.Minute
	// statementTimeout bounds one attempt to connect and run a statement.
	statementTimeout = 10 * time.Second
	// killedOutputWait is how long we read what a killed initdb printed.
	killedOutputWait = time.Second

	initPrefix   = "data-init-"
	durableFlag  = "fsync=on"
	volatileFlag = "fsync=off"
)

// arguments returns the command line: all settings are on it, so that the
// files initdb wrote stay as they are and /proc tells how a server was started.
func (p *Postgres) arguments(durable bool) []string {
	settings := []string{
		"listen_addresses=" + loopback,
		"port=" + strconv.Itoa(p.port),
		"unix_socket_directories=", // their paths are limited to 107 bytes
		"max_connections=200",
		"jit=off", // costs more than it gains on short queries
		"timezone=UTC",
		"log_timezone=UTC",
		"log_checkpoints=off",
	}
	if durable {
		settings = append(settings, durableFlag, "shared_buffers=256MB")
	} else {
		settings = append(settings, volatileFlag, "synchronous_commit=off", "full_page_writes=off",
			"wal_level=minimal", "max_wal_senders=0", "shared_buffers=128MB")
	}
	args := []string{"-D", p.data}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

// durable reports how the running server was started.
func (p *Postgres) durable() bool {
	b, err := os.ReadFile(filepath.Join(p.data, "postmaster.opts"))
	return err == nil && strings.Contains(string(b), durableFlag)
}

// initialize creates the database cluster unless there is one. It does so
// under another name first: an initdb that was killed leaves no data directory
// that looks complete.
func (p *Postgres) initialize(ctx context.Context, o PostgresOptions) error {
	if _, err := os.Stat(filepath.Join(p.data, "PG_VERSION")); err == nil {
		return nil
	}
	home := filepath.Dir(p.data)
	leftovers, _ := filepath.Glob(filepath.Join(home, initPrefix+"*"))
	for _, path := range leftovers {
		_ = os.RemoveAll(path) // an initdb may still be writing; next time then
	}
	tmp, err := os.MkdirTemp(home, initPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := p.account.own(tmp); err != nil {
		return err
	}
	// C.UTF-8 is part of every Debian; other systems may lack it.
	if err = p.initdb(ctx, o, tmp, "C.UTF-8"); err != nil && strings.Contains(err.Error(), "invalid locale") {
		err = p.initdb(ctx, o, tmp, "C")
	}
	if err != nil {
		return err
	}
	return os.Rename(filepath.Join(tmp, dataName), p.data)
}

// initdb creates tmp/data. Letters are classified by ctype but always sorted
// by code point: indexes then do not depend on the C library's version.
func (p *Postgres) initdb(ctx context.Context, o PostgresOptions, tmp, ctype string) error {
	secret := filepath.Join(tmp, passwordFile)
	if err := os.WriteFile(secret, []byte(p.password+"\n"), privateFileMode); err != nil {
		return err
	}
	if err := p.account.own(secret); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	args := []string{"--pgdata=" + filepath.Join(tmp, dataName), "--username=" + databaseName, "--pwfile=" + secret,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--lc-ctype=" + ctype, "--no-instructions"}
	if !o.Durable {
		args = append(args, "--no-sync")
	}
	cmd := exec.CommandContext(ctx, filepath.Join(o.Binaries.PostgresDir, "initdb"), args...)
	cmd.Env = serverEnv(o.Binaries.PostgresLibraries)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.account.credential()}
	detach(cmd)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killedOutputWait
	printed, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("create the database cluster with initdb: %w\n%s", err, lastLines(string(printed), ""))
}

// ping runs SELECT 1 in the database, creating the database if the server has
// none yet.
func (p *Postgres) ping(ctx context.Context) error {
	err := p.exec(ctx, databaseName, "SELECT 1")
	const unknownDatabase, wrongPassword = "3D000", "28P01"
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case unknownDatabase:
		return p.exec(ctx, "postgres", "CREATE DATABASE "+databaseName)
	case wrongPassword:
		return permanent{fmt.Errorf("the data and %s do not belong together: %w", filepath.Join(p.dir, passwordFile), err)}
	}
	return err
}

func (p *Postgres) exec(ctx context.Context, database, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.databaseURL(database))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}
