//go:build chaos

package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

// clockFaults are a further process of a function whose clock is CHAOS_CLOCKS ahead or
// behind. Without that setting there are none: their program is compiled together with the
// standard library, which takes minutes.
func (w *lone) clockFaults(functions []string) (faults []fault) {
	text := setting("CHAOS_CLOCKS", "")
	if text == "" {
		return nil
	}
	off, err := time.ParseDuration(text)
	kit.Must(w.t, err)
	say("building a program whose clock can be wrong")
	misled := w.misled(off)
	for _, function := range functions {
		for _, clock := range []string{"ahead", "behind"} {
			p := w.linked(function+"-"+clock, function)
			p.program = misled
			p.environment = append(p.environment, "CLOCK="+clock)
			faults = append(faults, fault{fmt.Sprintf("a %s whose clock is %s %s", function, text, clock), 5 * time.Second, 12 * time.Second, func(*rand.Rand) (func() error, error) {
				ctx, stop := context.WithCancel(context.Background())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for ctx.Err() == nil {
						p.tick() // refused, until it listens
						pause(ctx, 100*time.Millisecond)
					}
				}()
				return func() error { stop(); <-ended; return p.kill() }, p.start()
			}})
		}
	}
	return faults
}

// misled builds the program of the functions with a package time whose Now is wrong by off,
// as its variable CLOCK says. Go reads the clock without the C library and without a system
// call, so it can't be deceived from outside. Its monotonic clock is as it is.
func (w *lone) misled(off time.Duration) string {
	w.t.Helper()
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	kit.Must(w.t, err)
	file := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	source, err := os.ReadFile(file)
	kit.Must(w.t, err)
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	if strings.Count(string(source), now) != 1 {
		w.t.Fatalf("%s has another func Now than this test knows", file)
	}
	changed := strings.Replace(string(source), now, now+"\tsec += clockOff\n", 1) + fmt.Sprintf(`
var clockOff = func() int64 {
	switch clock, _ := syscall.Getenv("CLOCK"); clock {
	case "ahead":
		return %[1]d
	case "behind":
		return -%[1]d
	}
	return 0
}()
`, int(off.Seconds()))
	changed = strings.Replace(changed, "import (\n", "import (\n\t\"syscall\"\n", 1)
	other, overlay := filepath.Join(w.dir, "time.go"), filepath.Join(w.dir, "overlay.json")
	kit.Must(w.t, os.WriteFile(other, []byte(changed), 0o600))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: other}})
	kit.Must(w.t, err)
	kit.Must(w.t, os.WriteFile(overlay, list, 0o600))
	root, err := kit.Root()
	kit.Must(w.t, err)
	return program.Build(w.t, root, "./infra/miniserver", "-overlay="+overlay)
}
