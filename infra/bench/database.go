package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// database makes an empty, migrated database and returns its URL.
func (b *bench) database(ctx context.Context, name string) (string, error) {
	return b.databaseOf(ctx, b.serve, name)
}

// databaseOf is database with the migrations of a build of infra/miniserver.
func (b *bench) databaseOf(ctx context.Context, program, name string) (string, error) {
	database, err := b.emptyDatabase(ctx, name)
	if err != nil {
		return "", err
	}
	migrate := exec.CommandContext(ctx, program, "migrate")
	migrate.Env = []string{"DATABASE_URL=" + database}
	if printed, err := migrate.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s migrate: %w: %s", program, err, printed)
	}
	pool, err := postgres.Open(database, 1, "cache_statement", nil)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	_, err = entitlement.NewStore(pool, time.Hour).EnsureAudit(ctx, entitlement.Retention{AuditMonths: 1})
	return database, err
}

// emptyDatabase makes a database without tables and returns its URL.
func (b *bench) emptyDatabase(ctx context.Context, name string) (string, error) {
	name = "bench_" + name
	b.databases = append(b.databases, name)
	if err := errors.Join(
		b.admin(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"),
		b.admin(ctx, "CREATE DATABASE "+name),
	); err != nil {
		return "", err
	}
	u, err := url.Parse(b.postgres.URL())
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}

func (b *bench) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, b.postgres.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// pools returns a pool as functions have it, and one whose statements may take long.
func (b *bench) pools(ctx context.Context, database string, size int32) (pool, bulk *pgxpool.Pool, err error) {
	if pool, err = postgres.Open(database, size, "cache_statement", nil); err != nil {
		return nil, nil, err
	}
	if bulk, err = pgxpool.New(ctx, database); err != nil {
		pool.Close()
		return nil, nil, err
	}
	b.onTidy(func() error { pool.Close(); bulk.Close(); return nil })
	return pool, bulk, nil
}
