package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	initTimeout = 2 * time.Minute
	// statementTimeout bounds one attempt to connect and run a statement.
	statementTimeout = 10 * time.Second

	initPrefix   = "data-init-"
	durableFlag  = "fsync=on"
	volatileFlag = "fsync=off"
)

// arguments returns the command line, which has all settings: the files that initdb wrote
// stay as they are, and /proc shows how a server was started.
func (p *Server) arguments(durable bool) []string {
	settings := []string{
		"listen_addresses=" + proc.Loopback,
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
func (p *Server) durable() bool {
	b, err := os.ReadFile(filepath.Join(p.data, "postmaster.opts"))
	return err == nil && strings.Contains(string(b), durableFlag)
}

// initialize creates the database cluster unless there is one. It does so
// under another name first: an initdb that was killed leaves no data directory
// that looks complete.
func (p *Server) initialize(ctx context.Context, o Options) error {
	if _, err := os.Stat(filepath.Join(p.data, "PG_VERSION")); err == nil {
		return nil
	}
	at := filepath.Dir(p.data)
	leftovers, _ := filepath.Glob(filepath.Join(at, initPrefix+"*"))
	for _, path := range leftovers {
		_ = os.RemoveAll(path) // an initdb may still be writing; the next start removes them
	}
	tmp, err := os.MkdirTemp(at, initPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := p.account.Own(tmp); err != nil {
		return err
	}
	// C.UTF-8 is part of every Debian; other systems may lack it.
	if err = p.initdb(ctx, o, tmp, "C.UTF-8"); err != nil && strings.Contains(err.Error(), "invalid locale") {
		err = p.initdb(ctx, o, tmp, "C")
	}
	if err != nil {
		return err
	}
	return os.Rename(filepath.Join(tmp, home.DataName), p.data)
}

// initdb creates tmp/data. Letters are classified by ctype but always sorted
// by code point: indexes then do not depend on the C library's version.
func (p *Server) initdb(ctx context.Context, o Options, tmp, ctype string) error {
	secret := filepath.Join(tmp, home.PasswordFile)
	if err := os.WriteFile(secret, []byte(p.password+"\n"), home.PrivateFile); err != nil {
		return err
	}
	if err := p.account.Own(secret); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, initTimeout)
	defer cancel()
	args := []string{
		"--pgdata=" + filepath.Join(tmp, home.DataName), "--username=" + databaseName, "--pwfile=" + secret,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--lc-ctype=" + ctype, "--no-instructions",
	}
	if !o.Durable {
		args = append(args, "--no-sync")
	}
	cmd := proc.Command(ctx, filepath.Join(o.Binaries.PostgresDir, "initdb"), args...)
	cmd.Env = proc.Environment(o.Binaries.PostgresLibraries)
	cmd.SysProcAttr.Credential = p.account.Credential()
	printed, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("create the database cluster with initdb: %w\n%s", err, proc.LastLines(string(printed), ""))
}

// ping runs SELECT 1 in the database, creating the database if the server has
// none yet.
func (p *Server) ping(ctx context.Context) error {
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
		return proc.Permanent{Err: fmt.Errorf("the data and %s do not belong together: %w", filepath.Join(p.dir, home.PasswordFile), err)}
	}
	return err
}

func (p *Server) exec(ctx context.Context, database, statement string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.databaseURL(database))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}
