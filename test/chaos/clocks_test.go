//go:build chaos

package chaos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/kit/program"
)

// clocks are the wrong ones that processes can have.
var clocks = []string{"ahead", "behind"}

// misledProgram builds the program whose clock is CHAOS_CLOCKS ahead or behind. Without that
// setting there is none, and nobody's clock is wrong: it is compiled together with the
// standard library, which takes minutes.
func (w *lone) misledProgram() {
	if w.off = setting("CHAOS_CLOCKS", ""); w.off == "" {
		return
	}
	off, err := time.ParseDuration(w.off)
	kit.Must(w.t, err)
	say("building a program whose clock can be wrong")
	w.misled = w.misledBy(off)
}

// workerClockFaults are a further process of a function whose clock is wrong.
func (w *lone) workerClockFaults(functions []string) (faults []fault) {
	if w.misled == "" {
		return nil
	}
	for _, function := range functions {
		for _, clock := range clocks {
			p := w.linked(function+"-"+clock, function)
			p.program = w.misled
			p.environment = append(p.environment, "CLOCK="+clock)
			faults = append(faults, fault{fmt.Sprintf("a %s whose clock is %s %s", function, w.off, clock), 5 * time.Second, 12 * time.Second, func(*rand.Rand) (func() error, error) {
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

// processClockFaults are a process with all functions that is started again with a wrong
// clock: what clients are answered is written by it, too.
func (w *lone) processClockFaults() (faults []fault) {
	if w.misled == "" {
		return nil
	}
	for _, clock := range clocks {
		faults = append(faults, fault{fmt.Sprintf("a process whose clock is %s %s", w.off, clock), 2 * time.Second, 8 * time.Second, func(r *rand.Rand) (func() error, error) {
			p := w.gateways[r.IntN(len(w.gateways))]
			right := *p
			again := func() error {
				err := p.kill()
				p.program, p.environment = right.program, right.environment
				return errors.Join(err, p.start())
			}
			if err := p.kill(); err != nil {
				return nil, err
			}
			p.program, p.environment = w.misled, append(slices.Clip(p.environment), "CLOCK="+clock)
			return again, p.start()
		}})
	}
	return faults
}

// misledBy builds the program of the functions with a package time whose Now is wrong by off,
// as its variable CLOCK says. Go reads the clock without the C library and without a system
// call, so it can't be deceived from outside. Its monotonic clock is as it is.
func (w *lone) misledBy(off time.Duration) string {
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
