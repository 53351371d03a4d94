package keycloak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	minJava     = 17
	javaTimeout = 20 * time.Second
	aptTimeout  = 10 * time.Minute

	javaPackage  = "default-jre-headless"
	mavenPackage = "maven"
)

// findJava returns a java that is new enough, and installs one if there is none and
// we are root.
func findJava(ctx context.Context, out io.Writer) (string, error) {
	java, err := find(ctx, "java", javaPackage, out)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, javaTimeout)
	defer cancel()
	printed, err := exec.CommandContext(ctx, java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s -version: %w %s", java, err, proc.LastLines(string(printed), ""))
	}
	if version := javaVersion(string(printed)); version < minJava {
		return "", fmt.Errorf("%s is version %d and Keycloak %s needs %d or later; let JAVA_HOME name one", java, version, Version, minJava)
	}
	return java, nil
}

var quotedVersion = regexp.MustCompile(`version "(\d+)`)

// javaVersion returns the version in the output of `java -version`, 0 when it is unknown.
// (Java 8 prints 1.8, which is also too old.)
func javaVersion(printed string) int {
	found := quotedVersion.FindStringSubmatch(printed)
	if found == nil {
		return 0
	}
	version, _ := strconv.Atoi(found[1])
	return version
}

// find returns a program of Java's or Maven's.
func find(ctx context.Context, name, debianPackage string, out io.Writer) (string, error) {
	if home := os.Getenv("JAVA_HOME"); home != "" && name == "java" {
		return filepath.Join(home, "bin", name), nil
	}
	path, err := exec.LookPath(name)
	if !errors.Is(err, exec.ErrNotFound) {
		return path, err
	}
	installer, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return "", fmt.Errorf("%s is not installed; have root run: apt-get install %s %s", name, mavenPackage, javaPackage)
	}
	ctx, cancel := context.WithTimeout(ctx, aptTimeout)
	defer cancel()
	fmt.Fprintf(out, "keycloak: installing Debian's %s\n", debianPackage)
	for _, args := range [][]string{{"update", "-q"}, {"install", "-qy", "--no-install-recommends", debianPackage}} {
		cmd := proc.Command(ctx, installer, args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C")
		if err := runWatched(cmd, nil); err != nil {
			return "", err
		}
	}
	return exec.LookPath(name)
}
