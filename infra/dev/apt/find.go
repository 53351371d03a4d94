package apt

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// find returns the programs that exist already.
func (f *finder) find(ctx context.Context) Binaries {
	var b Binaries
	if !f.ignoreSystem {
		b.PostgresDir = f.systemPostgres(ctx)
		b.RedisServer = systemRedis(ctx)
	}
	if b.PostgresDir == "" {
		tree := filepath.Join(f.dir, unpackedPostgres)
		if b.PostgresDir = f.newest(filepath.Join(tree, systemPostgres)); b.PostgresDir != "" {
			b.PostgresLibraries = libraryPath(tree)
		}
	}
	if b.RedisServer == "" {
		tree := filepath.Join(f.dir, unpackedRedis)
		if program := filepath.Join(tree, "usr/bin", "redis-server"); executable(program) {
			b.RedisServer, b.RedisLibraries = program, libraryPath(tree)
		}
	}
	return b
}

// systemPostgres returns the newest PostgreSQL in Debian's directories, else
// the one in PATH, else "".
func (f *finder) systemPostgres(ctx context.Context) string {
	if dir := f.newest(systemPostgres); dir != "" {
		return dir
	}
	program, err := exec.LookPath("postgres")
	if err != nil {
		return ""
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return ""
	}
	dir := filepath.Dir(program)
	if !f.usable(dir) || majorVersion(ctx, program, "") < minPostgresMajor {
		return ""
	}
	return dir
}

// newest returns the matching directory of the highest sufficient version; the
// version is the name of the directory above it.
func (f *finder) newest(pattern string) string {
	best, bestMajor := "", minPostgresMajor-1
	dirs, _ := filepath.Glob(pattern)
	for _, dir := range dirs {
		major, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
		if err == nil && major > bestMajor && f.usable(dir) {
			best, bestMajor = dir, major
		}
	}
	return best
}

// usable reports whether PostgreSQL's user can run a server out of dir.
func (f *finder) usable(dir string) bool {
	return executable(filepath.Join(dir, "initdb")) && executable(filepath.Join(dir, "postgres")) &&
		f.account.Reaches(dir)
}

func systemRedis(ctx context.Context) string {
	program, err := exec.LookPath("redis-server")
	if err != nil || majorVersion(ctx, program, "") < minRedisMajor {
		return ""
	}
	return program
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&anyExecutes != 0
}

// libraryPath lists the directories of shared libraries in an unpacked tree.
func libraryPath(tree string) string {
	var dirs []string
	for _, pattern := range []string{"usr/lib/*-linux-*", "lib/*-linux-*", "usr/lib", "lib"} {
		found, _ := filepath.Glob(filepath.Join(tree, pattern))
		dirs = append(dirs, found...)
	}
	return strings.Join(dirs, ":")
}

// anyExecutes are the mode bits that make a file a program.
const anyExecutes = 0o111

var versionPattern = regexp.MustCompile(`(?:v=|\) )(\d+)`)

// majorVersion asks a program for its version: "postgres (PostgreSQL) 15.1" or
// "Redis server v=7.0.15 ...". It returns 0 if the program does not run.
func majorVersion(ctx context.Context, program, libraries string) int {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.Env = proc.Environment(libraries)
	out, err := cmd.Output()
	m := versionPattern.FindSubmatch(out)
	if err != nil || m == nil {
		return 0
	}
	major, _ := strconv.Atoi(string(m[1]))
	return major
}
