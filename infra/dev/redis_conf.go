package dev

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/miniserversystem/miniserver/pkg/rights"
)

// configure writes the server's configuration file. It is a file and not a
// command line because it holds the password, which `ps` must not show.
func (r *Redis) configure(users map[string]rights.Rights) error {
	if err := r.admit(users); err != nil {
		return err
	}
	data := filepath.Join(r.dir, redisName)
	if err := os.MkdirAll(data, privateDirMode); err != nil {
		return err
	}
	settings := [][2]string{
		{"bind", loopback},
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
		// The arguments of the process must stay as they are: adopt knows our
		// servers by the path of this file.
		{"set-proc-title", "no"},
	}
	if r.cluster {
		bus, err := FreePort(0)
		if err != nil {
			return err
		}
		settings = append(settings, [][2]string{
			{"cluster-enabled", "yes"},
			{"cluster-port", strconv.Itoa(bus)},
			{"cluster-announce-ip", loopback},
			{"cluster-node-timeout", "2000"},
		}...)
		r.busPort = bus
	}
	var b strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&b, "%s %s\n", s[0], redisQuote(s[1]))
	}
	return os.WriteFile(r.file(".conf"), []byte(b.String()), privateFileMode)
}

// admit writes who may do what, unless that is to stay as it is.
func (r *Redis) admit(users map[string]rights.Rights) error {
	if users == nil && exists(r.file(".acl")) {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "user default on >%s ~* &* +@all\n", r.password)
	for name, rights := range users {
		fmt.Fprintf(&b, "user %s on >%s %s\n", name, r.password, strings.Join(rights.Redis(), " "))
	}
	return os.WriteFile(r.file(".acl"), []byte(b.String()), privateFileMode)
}

// redisQuote quotes a value the way Redis reads configuration files.
func redisQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`).Replace(s) + `"`
}
