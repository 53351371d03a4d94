package redis

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
	"github.com/miniserversystem/miniserver/pkg/rights"
)

// configure writes the server's configuration file. It is a file and not a
// command line because it holds the password, which `ps` must not show.
func (r *Server) configure(users map[string]rights.Rights) error {
	if err := r.admit(users); err != nil {
		return err
	}
	data := filepath.Join(r.dir, name)
	if err := os.MkdirAll(data, home.PrivateDir); err != nil {
		return err
	}
	settings := [][2]string{
		{"bind", proc.Loopback},
		{"port", strconv.Itoa(r.port)},
		{"aclfile", r.file(".acl")},
		{"dir", data},
		{"pidfile", r.file(".pid")},
		{"appendonly", "yes"},
		{"appendfsync", "everysec"},
		{"save", ""}, // the append-only file is enough
		{"daemonize", "no"},
		{"supervised", "no"},
		{"logfile", ""}, // standard output
		{"always-show-logo", "no"},
		// The arguments of the process must stay as they are: proc recognizes our servers
		// by the path of this file.
		{"set-proc-title", "no"},
	}
	if r.cluster {
		bus, err := proc.FreePort(0)
		if err != nil {
			return err
		}
		settings = append(settings, [][2]string{
			{"cluster-enabled", "yes"},
			{"cluster-port", strconv.Itoa(bus)},
			{"cluster-announce-ip", proc.Loopback},
			{"cluster-node-timeout", "2000"},
		}...)
		r.busPort = bus
	}
	var b strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&b, "%s %s\n", s[0], quote(s[1]))
	}
	return os.WriteFile(r.file(".conf"), []byte(b.String()), home.PrivateFile)
}

// admit writes the users' rights; nil users leave an existing file as it is.
func (r *Server) admit(users map[string]rights.Rights) error {
	if _, err := os.Stat(r.file(".acl")); users == nil && err == nil {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "user default on >%s ~* &* +@all\n", r.password)
	for user, rights := range users {
		fmt.Fprintf(&b, "user %s on >%s %s\n", user, r.password, strings.Join(rights.Redis(), " "))
	}
	return os.WriteFile(r.file(".acl"), []byte(b.String()), home.PrivateFile)
}

// quote quotes a value the way Redis reads configuration files.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`).Replace(s) + `"`
}
