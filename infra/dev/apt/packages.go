package apt

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	serverPackage = regexp.MustCompile(`^postgresql-([0-9]+)$`)
	libraryLine   = regexp.MustCompile(`(?m)^Inst (lib\S+) `)
	// needless are libraries that nothing here loads (the LLVM of PostgreSQL's
	// just-in-time compiler alone is 30 MB), and the C library, which cannot be replaced
	// for one program.
	needless = regexp.MustCompile(`^(libllvm|libz3|libperl|libc6|libc-bin|.*-perl$|.*-dev$)`)
)

// librariesIn picks the shared libraries from a simulated installation. The rest are
// scripts that manage services, which we do not need.
func librariesIn(simulation string) []string {
	var list []string
	for _, m := range libraryLine.FindAllStringSubmatch(simulation, -1) {
		if !needless.MatchString(m[1]) {
			list = append(list, m[1])
		}
	}
	return list
}

// postgresPackages returns the packages that the newest PostgreSQL server needs here.
func (a *apt) postgresPackages(ctx context.Context) ([]string, error) {
	out, err := a.run(ctx, "", "apt-cache", "search", "--names-only", serverPackage.String())
	if err != nil {
		return nil, err
	}
	newest := minPostgresMajor - 1
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, " ")
		if m := serverPackage.FindStringSubmatch(name); m != nil {
			major, _ := strconv.Atoi(m[1])
			newest = max(newest, major)
		}
	}
	if newest < minPostgresMajor {
		return nil, fmt.Errorf("the package lists offer no PostgreSQL %d or later", minPostgresMajor)
	}
	return a.simulate(ctx, fmt.Sprintf("postgresql-%d", newest), fmt.Sprintf("postgresql-client-%d", newest))
}

// redisPackages returns the packages that the Redis server needs here.
func (a *apt) redisPackages(ctx context.Context) ([]string, error) {
	// redis-server is a link to a program in redis-tools.
	return a.simulate(ctx, "redis-server", "redis-tools")
}

// simulate lists the packages that apt would install for the programs. The list has the
// programs even if the system has them: a server whose tree is half in the system and
// half in ours does not work.
func (a *apt) simulate(ctx context.Context, programs ...string) ([]string, error) {
	out, err := a.run(ctx, "", "apt-get", append([]string{"-s", "install", "--no-install-recommends"}, programs...)...)
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(programs), librariesIn(out)...), nil
}
