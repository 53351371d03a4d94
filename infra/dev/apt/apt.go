// Package apt finds the server programs of this machine, and unpacks those that are
// missing from packages of its own Debian mirrors. Nothing is installed in the system,
// and root is not needed.
package apt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	systemAptParts = "/etc/apt/apt.conf.d"
	systemAptState = "/var/lib/apt"
)

// apt asks the machine's package sources, reading the system's configuration
// and writing only in dir.
type apt struct {
	dir      string
	lists    string // the state directory whose package lists are used
	progress io.Writer
}

func newApt(dir string, progress io.Writer) (*apt, error) {
	if strings.ContainsAny(dir, "\"\n;{}") {
		return nil, fmt.Errorf("apt cannot work in a directory with such a name: %q", dir)
	}
	a := &apt{dir: dir, lists: systemAptState, progress: progress}
	for _, sub := range []string{"parts", "state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), home.PublicDir); err != nil {
			return nil, err
		}
	}
	return a, a.configure()
}

// configure makes a configuration of the system's parts (proxies, mirrors'
// certificates) and one of ours that comes last. Only a file can clear hooks:
// those of some images delete from the system's caches after every update.
func (a *apt) configure() error {
	parts, _ := filepath.Glob(filepath.Join(systemAptParts, "*"))
	for _, part := range parts {
		if err := os.Symlink(part, filepath.Join(a.dir, "parts", filepath.Base(part))); err != nil {
			return err
		}
	}
	ours := `#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::Contents-deb;
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "";
`
	if os.Geteuid() == 0 { // apt's own user cannot write in our directory
		ours += `APT::Sandbox::User "root";` + "\n"
	}
	if err := os.WriteFile(filepath.Join(a.dir, "parts", "zzz-miniserver"), []byte(ours), home.PrivateFile); err != nil {
		return err
	}
	first := fmt.Sprintf("Dir::Etc::parts \"%s/\";\n", filepath.Join(a.dir, "parts"))
	if theirs := os.Getenv("APT_CONFIG"); theirs != "" {
		first = fmt.Sprintf("#include \"%s\";\n", theirs) + first
	}
	return os.WriteFile(filepath.Join(a.dir, "apt.conf"), []byte(first), home.PrivateFile)
}

// fetch downloads the packages that choose returns into a new directory and returns their
// files. It first tries the system's package lists, then, since those may be absent or
// older than the mirror, lists of our own.
func (a *apt) fetch(ctx context.Context, into string, choose func(context.Context) ([]string, error)) ([]string, error) {
	if err := os.Mkdir(into, home.PublicDir); err != nil {
		return nil, err
	}
	debs, err := a.download(ctx, into, choose)
	if err == nil || a.updated() || ctx.Err() != nil {
		return debs, err
	}
	a.lists = filepath.Join(a.dir, "state")
	fmt.Fprintln(a.progress, "reading the package lists of this machine's mirrors (about 10 MB)")
	// One unreachable source of many is no reason to give up: what counts is
	// whether the packages can be had now.
	_, updateErr := a.run(ctx, "", "apt-get", "update")
	if debs, err = a.download(ctx, into, choose); err != nil {
		return nil, errors.Join(err, updateErr)
	}
	return debs, nil
}

// updated reports whether we have package lists of our own.
func (a *apt) updated() bool { return a.lists == filepath.Join(a.dir, "state") }

func (a *apt) download(ctx context.Context, into string, choose func(context.Context) ([]string, error)) ([]string, error) {
	names, err := choose(ctx)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(a.progress, "downloading %s\n", strings.Join(names, " "))
	if _, err := a.run(ctx, into, "apt-get", append([]string{"download"}, names...)...); err != nil {
		return nil, err
	}
	debs, err := filepath.Glob(filepath.Join(into, "*.deb"))
	if err == nil && len(debs) < len(names) {
		err = fmt.Errorf("apt-get downloaded %d packages of %d", len(debs), len(names))
	}
	return debs, err
}

// run runs an apt program in directory dir and returns its standard output.
func (a *apt) run(ctx context.Context, dir, name string, args ...string) (string, error) {
	options := []string{
		"-q", "-o", "Dir::Cache=" + filepath.Join(a.dir, "cache"), "-o", "Dir::State=" + a.lists,
		"-o", "Dir::State::status=/var/lib/dpkg/status",
	}
	cmd := proc.Command(ctx, name, append(options, args...)...)
	if dir != "" {
		cmd.Dir = dir
	}
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "APT_CONFIG="+filepath.Join(a.dir, "apt.conf"))
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, proc.LastLines(complaints.String(), out.String()))
	}
	return out.String(), nil
}
