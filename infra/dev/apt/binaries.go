package apt

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/home"
)

const (
	minPostgresMajor = 15
	minRedisMajor    = 7

	// systemPostgres is where Debian keeps the programs of each version, none
	// of which is in PATH.
	systemPostgres = "/usr/lib/postgresql/*/bin"

	// unpackedPostgres and unpackedRedis are the trees of packages we unpacked.
	// They appear complete or not at all.
	unpackedPostgres = "postgresql"
	unpackedRedis    = "redis"

	versionTimeout = 10 * time.Second
)

// Binaries are the server programs found or unpacked by [Ensure].
type Binaries struct {
	// PostgresDir is the directory of initdb, postgres, pg_dump and psql.
	PostgresDir string
	// PostgresLibraries is the LD_LIBRARY_PATH those programs need; empty for
	// the ones installed in the system.
	PostgresLibraries string
	// RedisServer is the path of redis-server.
	RedisServer string
	// RedisLibraries is the LD_LIBRARY_PATH it needs, or empty.
	RedisLibraries string
}

// Ensure returns the server programs: PostgreSQL 15 or later and Redis 7 or later. It
// takes those that the machine has (PATH, and Debian's directories), then those that an
// earlier call unpacked in dir, and otherwise downloads the missing packages from the
// machine's own Debian mirrors and unpacks them in dir. Nothing is installed in the
// system, no service is started and root is not needed. Each step prints one line to
// progress, which may be nil. Several processes may call it at once. When nothing is
// missing it takes milliseconds. As root, if the user PostgreSQL runs as cannot reach
// dir, a directory under /var/tmp takes its place. Errors say what to do.
func Ensure(ctx context.Context, dir string, progress io.Writer) (Binaries, error) {
	if progress == nil {
		progress = io.Discard
	}
	f := finder{progress: progress}
	return f.ensure(ctx, dir)
}

// finder looks for server programs and installs the missing ones.
type finder struct {
	progress     io.Writer
	dir          string
	account      *home.Account
	ignoreSystem bool // tests unpack what the machine has already
	ignoreLists  bool // tests use package lists of their own
}

func (f *finder) ensure(ctx context.Context, dir string) (Binaries, error) {
	var err error
	if f.account, err = home.ServerAccount(); err != nil {
		return Binaries{}, err
	}
	if f.dir, err = home.Programs(dir, f.account); err != nil {
		return Binaries{}, fmt.Errorf("prepare %s for server programs: %w", dir, err)
	}
	b := f.find(ctx)
	if b.complete() {
		return b, nil
	}
	if err := f.install(ctx); err != nil {
		return Binaries{}, fmt.Errorf("%w\nInstall PostgreSQL %d or later and Redis %d or later, "+
			"or set DATABASE_URL and REDIS_URL to servers you have", err, minPostgresMajor, minRedisMajor)
	}
	if b = f.find(ctx); !b.complete() {
		return Binaries{}, fmt.Errorf("%s holds no server programs after unpacking; delete it and try again", f.dir)
	}
	return b, nil
}

func (b Binaries) complete() bool { return b.PostgresDir != "" && b.RedisServer != "" }
