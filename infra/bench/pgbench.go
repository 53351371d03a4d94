package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// fourWrites returns the limit of grants that share no commit: the statement of one, run by
// pgbench.
func (b *bench) fourWrites(ctx context.Context) (run func(context.Context) (float64, error), name string, err error) {
	database, err := b.database(ctx, "pgbench")
	if err != nil {
		return nil, "", err
	}
	program, err := b.findPgbench()
	if err != nil {
		return nil, "", err
	}
	script := filepath.Join(b.dir, "grant.pgbench")
	if err := writeScript(script); err != nil {
		return nil, "", err
	}
	run, err = b.pgbench(program, database, script, "if_match=0", "purchase=false")
	return run, "pgbench, 16 connections", err
}

// pgbench returns an arm that runs a script on 16 connections. The script's variable n
// begins higher each time, so that ids keep growing.
func (b *bench) pgbench(program, database, script string, variables ...string) (func(context.Context) (float64, error), error) {
	u, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	password, _ := u.User.Password()
	first := 10_000_000
	return func(ctx context.Context) (float64, error) {
		first += 1_000_000
		args := []string{
			"-n", "-M", "prepared", "-c", "16", "-j", "2", "-T", strconv.Itoa(max(1, int(b.sizes.window.Seconds()))),
			"-f", script, "-h", u.Hostname(), "-p", u.Port(), "-U", u.User.Username(),
		}
		for _, variable := range append(variables, "n="+strconv.Itoa(first)) {
			args = append(args, "-D", variable)
		}
		command := exec.CommandContext(ctx, program, append(args, u.Path[1:])...)
		command.Env = []string{"PGPASSWORD=" + password, "PGSSLMODE=disable", "LD_LIBRARY_PATH=" + b.binaries.PostgresLibraries}
		return transactionsPerSecond(command)
	}, nil
}

func (b *bench) findPgbench() (string, error) {
	candidates, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench")
	for _, path := range append([]string{filepath.Join(b.binaries.PostgresDir, "pgbench")}, candidates...) {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return exec.LookPath("pgbench")
}

var tps = regexp.MustCompile(`tps = ([0-9.]+)`)

func transactionsPerSecond(command *exec.Cmd) (float64, error) {
	var complaints strings.Builder
	command.Stderr = &complaints
	printed, err := command.Output()
	found := tps.FindSubmatch(printed)
	if err != nil || found == nil || strings.Contains(complaints.String(), "ERROR") {
		return 0, errors.Join(fmt.Errorf("pgbench: %.1000s", complaints.String()), err)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// grantPath has the statement of a grant that comes alone.
const grantPath = "pkg/entitlement/change_one.sql"

// arguments are pgbench's values for the parameters of grantPath. Ids grow, as UUIDv7
// do; user and key are random, like those of the other arms.
var arguments = []string{
	1: ":usr::text", 2: "'item1'::text", 3: "'ACTIVE'::text", 4: ":if_match::bigint",
	5: "'5e2f1ce0-0000-4000-8000-000000000101'::text", 6: "'grant'::text", 7: ":key::text",
	8: "decode(repeat('ab', 32), 'hex')", 9: "'24 hours'::interval",
	10: "(:n::text || '-0000-7000-8' || :a::text || '-' || :b::text)::uuid",
	11: "'purchase'::text", 12: ":key::text",
	13: "'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'::text", 14: ":purchase::boolean",
}

var (
	parameter  = regexp.MustCompile(`\$(\d+)`)
	comment    = regexp.MustCompile(`(?m)^--.*\n`)
	looksLikeA = regexp.MustCompile(`([^:]):(\w)`) // variable of pgbench: a colon inside a literal
)

func writeScript(path string) error {
	statement, err := os.ReadFile(grantPath)
	if err != nil {
		return err
	}
	text := comment.ReplaceAllString(string(statement), "")
	text = looksLikeA.ReplaceAllString(text, "$1:'||'$2")
	text = parameter.ReplaceAllStringFunc(text, func(p string) string {
		n, _ := strconv.Atoi(p[1:])
		if n >= len(arguments) {
			err = fmt.Errorf("the statement of a grant has a parameter %s that has no argument here", p)
			return p
		}
		return "(" + arguments[n] + ")"
	})
	if err != nil {
		return err
	}
	const choose = `\set n :n + 1
\set usr random(1, 1000000)
\set key random(100000000000000000, 999999999999999999)
\set a random(100, 999)
\set b random(100000000000, 999999999999)
`
	return os.WriteFile(path, []byte(choose+strings.TrimSpace(text)+";\n"), 0o644)
}
