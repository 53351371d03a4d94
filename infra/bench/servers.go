package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/postgres"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// bench is one run: its servers, its sizes, and its results.
type bench struct {
	dir    string
	sizes  sizes
	serve  string // path of the binary that serves
	other  string // the commit that it is measured beside; usually none
	beside bool   // other projects are measured, too
	most   int    // of what grows in curves
	began  time.Time

	binaries  apt.Binaries
	postgres  *postgres.Server
	issuer    *issuer.Server
	token     string // of the purchase service, for longer than any run
	databases []string
	closers   []func() error // of the experiment that runs, in the order of opening

	rows   []row
	notes  []string
	tables []string // of their own, after the notes
}

// poolSize is the system's default.
const poolSize = 16

func (b *bench) start(ctx context.Context) (err error) {
	if _, err := os.Stat("go.mod"); err != nil {
		return errors.New("run it from the root of the repository")
	}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	if b.binaries, err = apt.Ensure(ctx, filepath.Join(".local", "deps"), os.Stderr); err != nil {
		return err
	}
	if b.postgres, err = postgres.Start(ctx, postgres.Options{
		Dir: filepath.Join(b.dir, "postgres"), Binaries: b.binaries, Durable: true,
	}); err != nil {
		return err
	}
	listener, err := proc.Listen(0)
	if err != nil {
		return err
	}
	if b.issuer, err = issuer.Start(context.WithoutCancel(ctx), listener, issuer.Options{AccessTokenLifetime: time.Hour}); err != nil {
		return err
	}
	if b.token, err = b.accessToken(ctx); err != nil {
		return err
	}
	if b.serve == "" {
		b.serve = filepath.Join(b.dir, "miniserver")
		err = build(ctx, ".", b.serve, "./infra/miniserver")
	}
	return err
}

// stop ends what start began; first it closes what an experiment left open.
func (b *bench) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	if b.postgres != nil {
		errs = append(errs, b.tidy(ctx), b.postgres.Stop())
	}
	if b.issuer != nil {
		errs = append(errs, b.issuer.Stop())
	}
	return errors.Join(errs...)
}

// tidy closes what an experiment opened, newest first, and drops its databases.
func (b *bench) tidy(ctx context.Context) error {
	var errs []error
	for i := len(b.closers) - 1; i >= 0; i-- {
		errs = append(errs, b.closers[i]())
	}
	for _, name := range b.databases {
		errs = append(errs, b.admin(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"))
	}
	b.closers, b.databases = nil, nil
	// So that this experiment's writes to the disk do not disturb the next one.
	return errors.Join(append(errs, b.admin(ctx, "CHECKPOINT"))...)
}

func (b *bench) onTidy(do func() error) { b.closers = append(b.closers, do) }

// build builds a program of the tree in dir, as an image is built.
func build(ctx context.Context, dir, out, what string) error {
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", out, what)
	command.Dir, command.Stderr = dir, os.Stderr
	return command.Run()
}

func (b *bench) accessToken(ctx context.Context) (string, error) {
	form := url.Values{"grant_type": {"client_credentials"}}.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, b.issuer.URL()+"/token", strings.NewReader(form))
	if err != nil {
		return "", err
	}
	request.SetBasicAuth(issuer.PurchaseServiceClientID, issuer.PurchaseServiceClientSecret)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var answer struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.AccessToken == "" {
		return "", fmt.Errorf("no access token: %s, %w", response.Status, err)
	}
	return answer.AccessToken, nil
}
