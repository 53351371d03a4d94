package keycloak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/apt"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	artifact = "org.keycloak:keycloak-quarkus-dist:" + Version + ":zip"
	// mavenUnpack is pinned, so that what is fetched does not change by itself.
	mavenUnpack = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack"

	downloadMB   = 195 // with Maven's own plugins
	downloadTime = 15 * time.Minute
	buildTime    = 5 * time.Minute

	dirMode = 0o755
)

// installation is what a Keycloak is started from.
type installation struct{ java, home string }

// install returns the distribution in o.Dir, which it fetches and builds the first
// time. Of several processes one does it and the others wait.
func install(ctx context.Context, o Options) (installation, error) {
	java, err := findJava(ctx, o.Out)
	if err != nil {
		return installation{}, err
	}
	found := installation{java: java, home: filepath.Join(o.Dir, "keycloak-"+Version)}
	if err := os.MkdirAll(o.Dir, dirMode); err != nil {
		return found, err
	}
	held, err := proc.TryLock(filepath.Join(o.Dir, "lock"))
	if errors.Is(err, proc.ErrInUse) {
		fmt.Fprintln(o.Out, "keycloak: waiting for another process that fetches it")
		held, err = proc.Lock(ctx, filepath.Join(o.Dir, "lock"))
	}
	if err != nil {
		return found, err
	}
	defer held.Close()
	if _, err := os.Stat(found.home); !errors.Is(err, fs.ErrNotExist) {
		return found, err
	}
	return found, found.fetch(ctx, o)
}

// fetch makes the distribution under another name first, so that it never exists
// incomplete.
func (i installation) fetch(ctx context.Context, o Options) error {
	maven, err := find(ctx, "mvn", mavenPackage, o.Out)
	if err != nil {
		return err
	}
	making := filepath.Join(o.Dir, "making")
	if err := os.RemoveAll(making); err != nil { // a process was killed here
		return err
	}
	defer os.RemoveAll(making)
	// Maven keeps its downloads. They go here, not to the home directory, so that they
	// are removed in the end.
	repository, unpacked := filepath.Join(making, "repository"), filepath.Join(making, "unpacked")
	if err := os.MkdirAll(repository, dirMode); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "keycloak: downloading Keycloak %s from Maven Central, about %d MB\n", Version, downloadMB)
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, downloadTime)
	defer cancel()
	cmd := proc.Command(ctx, maven, mavenUnpack, "--batch-mode", "--no-transfer-progress", "--strict-checksums",
		"-Dartifact="+artifact, "-DoutputDirectory="+unpacked, "-Dmaven.repo.local="+repository)
	cmd.Dir = making // where there is no pom.xml
	err = runWatched(cmd, func(elapsed time.Duration) {
		fmt.Fprintf(o.Out, "keycloak: %.0f MB after %.0f s\n", apt.SizeMB(repository), elapsed.Seconds())
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "keycloak: downloaded and unpacked %.0f MB in %.0f s; building it, once\n", apt.SizeMB(repository), time.Since(began).Seconds())
	made := filepath.Join(unpacked, filepath.Base(i.home))
	if err := i.build(ctx, made, o.Out); err != nil {
		return err
	}
	return os.Rename(made, i.home)
}

// build prepares the distribution for the in-memory database: a start would take half a
// minute for it.
func (i installation) build(ctx context.Context, home string, out io.Writer) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	cmd := proc.Command(ctx, filepath.Join(home, "bin", "kc.sh"), "build", "--db="+database)
	cmd.Dir = home
	cmd.Env = environment("JAVA=" + i.java)
	err := runWatched(cmd, func(elapsed time.Duration) {
		fmt.Fprintf(out, "keycloak: building since %.0f s\n", elapsed.Seconds())
	})
	if err == nil {
		fmt.Fprintf(out, "keycloak: built in %.0f s; kept in %s\n", time.Since(began).Seconds(), i.home)
	}
	return err
}
