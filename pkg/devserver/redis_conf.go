package devserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// configure writes the server's configuration file. It is a file and not a
// command line because it holds the password, which `ps` must not show.
func (r *Redis) configure() error {
	data := filepath.Join(r.dir, redisName)
	if err := os.MkdirAll(data, privateDirMode); err != nil {
		return err
	}
	settings := [][2]string{
		{"bind", loopback},
		{"port", strconv.Itoa(r.port)},
		{"requirepass", r.password},
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

// redisQuote quotes a value the way Redis reads configuration files.
func redisQuote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`).Replace(s) + `"`
}
