package rabbitmq

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/miniserversystem/miniserver/infra/dev/home"
	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// erlScript replaces Debian's erl, which looks for Erlang only where the system has it.
const erlScript = `#!/bin/sh
export ROOTDIR='%s' BINDIR='%s' EMU=beam PROGNAME=erl
exec "$BINDIR/erlexec" "$@"
`

// configure writes the server's files and sets its environment. The password is in a
// file, which `ps` does not show.
func (r *Server) configure(e erlang, bin string, mapperPort int) error {
	data, programs := filepath.Join(r.dir, name), r.file(".bin")
	for _, dir := range []string{data, programs} {
		if err := os.MkdirAll(dir, home.PrivateDir); err != nil {
			return err
		}
	}
	nodePort, err := proc.FreePort(0)
	if err != nil {
		return err
	}
	toolPort, err := proc.FreePort(0)
	if err != nil {
		return err
	}
	erl := fmt.Sprintf(erlScript, filepath.Join(e.tree, "usr/lib/erlang"), bin)
	if err := os.WriteFile(filepath.Join(programs, "erl"), []byte(erl), home.PrivateDir); err != nil {
		return err
	}
	for suffix, content := range map[string]string{
		".plugins": "[].\n",
		".conf": fmt.Sprintf(`listeners.tcp.1 = %s
default_user = %s
default_pass = %s
log.file = false
log.console = true
log.console.level = warning
`, proc.Address(r.port), owner, r.password),
	} {
		if err := os.WriteFile(r.file(suffix), []byte(content), home.PrivateFile); err != nil {
			return err
		}
	}
	r.env = append([]string{
		"PATH=" + programs + ":/usr/local/bin:/usr/bin:/bin", "HOME=" + data, "LANG=C.UTF-8", "LC_ALL=C.UTF-8",
		"RABBITMQ_NODENAME=miniserver@localhost", // one node for each port mapper: names need not differ
		"RABBITMQ_MNESIA_BASE=" + data, "RABBITMQ_LOG_BASE=" + data,
		"RABBITMQ_CONFIG_FILE=" + r.file(".conf"), "RABBITMQ_ENABLED_PLUGINS_FILE=" + r.file(".plugins"),
		"RABBITMQ_CONF_ENV_FILE=/dev/null", // not the system's
		fmt.Sprintf("RABBITMQ_DIST_PORT=%d", nodePort),
		fmt.Sprintf("RABBITMQ_CTL_DIST_PORT_MIN=%d", toolPort), fmt.Sprintf("RABBITMQ_CTL_DIST_PORT_MAX=%d", toolPort),
		fmt.Sprintf("ERL_EPMD_PORT=%d", mapperPort), "ERL_EPMD_ADDRESS=" + proc.Loopback,
		"RUNNING_UNDER_SYSTEMD=1", // the script becomes the server, so that signals reach it
		// The last flag means nothing to the server; we recognize ours by it.
		"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} -miniserver " + r.dir,
	}, libraryEnv(e.libraries)...)
	return nil
}

func libraryEnv(path string) []string {
	if path == "" {
		return nil
	}
	return []string{"LD_LIBRARY_PATH=" + path}
}
