package keycloak

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

const (
	// database is Keycloak's name for one in memory.
	database = "dev-mem"

	readyTimeout = 3 * time.Minute
	readyPoll    = 100 * time.Millisecond
	askTimeout   = 10 * time.Second
)

// inOrder ends Keycloak in order, which takes one second.
var inOrder = proc.Step{Signal: syscall.SIGTERM, Wait: 15 * time.Second}

// javaOptions are those of bin/kc.sh, changed for a small server: a small heap, one
// compiler, no files in /tmp. Java is started without the script, so that there is one
// process, which dies with us.
var javaOptions = []string{
	"-Xms64m", "-Xmx384m", "-XX:MetaspaceSize=96M", "-XX:MaxMetaspaceSize=256m",
	"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError",
	"-Dfile.encoding=UTF-8", "-Duser.language=en", "-Duser.country=US",
	"-Djava.util.concurrent.ForkJoinPool.common.threadFactory=io.quarkus.bootstrap.forkjoin.QuarkusForkJoinWorkerThreadFactory",
	"-Djava.util.logging.manager=org.jboss.logmanager.LogManager",
	"-Dpicocli.disable.closures=true", "-Dquarkus-log-max-startup-records=10000",
	// Otherwise the transaction manager occupies a port, only to have a unique number.
	"-DCoreEnvironmentBean.processImplementationClassName=com.arjuna.ats.internal.arjuna.utils.UuidProcessId",
	"--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
	"--add-opens=java.base/java.security=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
	"--enable-native-access=ALL-UNNAMED",
}

// run starts one Keycloak on a port and waits until its realm answers.
func run(ctx context.Context, found installation, port int, realm []byte, out io.Writer) (_ *Server, err error) {
	home, err := prepareHome(found, realm)
	if err != nil {
		return nil, err
	}
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	s := &Server{issuer: base + "/realms/" + realmName, admin: admin{base: base, secret: rand.Text()}}
	cmd := found.command(home, base, port)
	cmd.Env = environment("KC_BOOTSTRAP_ADMIN_CLIENT_ID="+adminClientID, "KC_BOOTSTRAP_ADMIN_CLIENT_SECRET="+s.admin.secret)
	fmt.Fprintf(out, "keycloak: starting Keycloak %s\n", Version)
	began, told := time.Now(), time.Now()
	running, err := proc.Server{
		Command: cmd, Log: filepath.Join(home, "log"), Within: readyTimeout, Stop: []proc.Step{inOrder},
		Ready: func(ctx context.Context) error {
			if time.Since(told) >= progressEvery {
				told = time.Now()
				fmt.Fprintf(out, "keycloak: starting for %.0f s\n", time.Since(began).Seconds())
			}
			err := s.answers(ctx)
			if err != nil {
				_ = proc.Sleep(ctx, readyPoll) // Keycloak needs the processor more than we do
			}
			return err
		},
	}.Start(ctx)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(home))
	}
	fmt.Fprintf(out, "keycloak: %s answers after %.1f s\n", s.issuer, time.Since(began).Seconds())
	end := sync.OnceValue(func() error { return errors.Join(running.End(inOrder), os.RemoveAll(home)) })
	release := context.AfterFunc(ctx, func() { _ = end() })
	s.stop = func() error {
		release()
		return end()
	}
	return s, nil
}

// answers asks as our administrator: the port may be that of another Keycloak.
func (s *Server) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return s.admin.call(ctx, http.MethodGet, "", nil, nil)
}

// prepareHome makes a directory for one server, in which only the data is its own. It is
// a temporary directory, so the system removes what a killed process leaves.
func prepareHome(found installation, realm []byte) (string, error) {
	home, err := os.MkdirTemp("", "miniserver-keycloak-") // mode 0700
	if err != nil {
		return "", err
	}
	for _, shared := range []string{"conf", "lib", "providers", "themes"} {
		err = errors.Join(err, os.Symlink(filepath.Join(found.home, shared), filepath.Join(home, shared)))
	}
	imports := filepath.Join(home, "data", "import")
	err = errors.Join(err, os.MkdirAll(imports, dirMode), os.Mkdir(filepath.Join(home, "tmp"), dirMode))
	if err == nil {
		err = os.WriteFile(filepath.Join(imports, realmName+"-realm.json"), realm, 0o600)
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(home))
	}
	return home, nil
}

func (i installation) command(home, base string, port int) *exec.Cmd {
	cmd := exec.Command(i.java, append(append([]string{}, javaOptions...),
		"-Djava.io.tmpdir="+filepath.Join(home, "tmp"),
		"-Dkc.home.dir="+home, "-Djboss.server.config.dir="+filepath.Join(home, "conf"),
		"-cp", filepath.Join(i.home, "lib", "quarkus-run.jar"), "io.quarkus.bootstrap.runner.QuarkusEntryPoint",
		"start", "--optimized", "--import-realm", "--cache=local", // no cluster, no multicast
		"--http-enabled=true", "--http-host=127.0.0.1", fmt.Sprintf("--http-port=%d", port), "--hostname="+base)...)
	cmd.Dir = home
	return cmd
}

// environment is Keycloak's whole environment: a setting of the user's, such as KC_DB,
// would otherwise change what is tested.
func environment(own ...string) []string {
	return append([]string{"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"}, own...)
}
