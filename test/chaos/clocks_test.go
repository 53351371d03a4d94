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

// wrongClock is what the clock of a process can be.
type wrongClock struct {
	how string // "1h ahead"
	set func(p *process)
}

// wrongClocks are CHAOS_CLOCKS ahead and behind. Without that setting there are none: their
// program is compiled together with the standard library, which takes minutes.
func (w *lone) wrongClocks() (list []wrongClock) {
	text := setting("CHAOS_CLOCKS", "")
	if text == "" {
		return nil
	}
	off, err := time.ParseDuration(text)
	kit.Must(w.t, err)
	say("building a program whose clock can be wrong")
	program := w.misled(off)
	for _, way := range []string{"ahead", "behind"} {
		list = append(list, wrongClock{text + " " + way, func(p *process) {
			p.program, p.environment = program, append(slices.Clip(p.environment), "CLOCK="+way)
		}})
	}
	return list
}

// workerClockFaults are a further process of a worker whose clock is wrong.
func (w *lone) workerClockFaults(clocks []wrongClock) (faults []fault) {
	for _, function := range append(slices.Clip(workers), "reconcile") {
		for _, clock := range clocks {
			p := w.linked(function+"-"+strings.ReplaceAll(clock.how, " ", "-"), function)
			clock.set(p)
			faults = append(faults, fault{fmt.Sprintf("a %s whose clock is %s", function, clock.how), 5 * time.Second, 12 * time.Second, func(*rand.Rand) (func() error, error) {
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
func (w *lone) processClockFaults(clocks []wrongClock) (faults []fault) {
	for _, clock := range clocks {
		faults = append(faults, fault{"a process whose clock is " + clock.how, 2 * time.Second, 8 * time.Second, func(r *rand.Rand) (func() error, error) {
			p := w.gateways[r.IntN(len(w.gateways))]
			if err := p.kill(); err != nil {
				return nil, err
			}
			program, environment := p.program, p.environment
			clock.set(p)
			return func() error {
				err := p.kill()
				p.program, p.environment = program, environment
				return errors.Join(err, p.start())
			}, p.start()
		}})
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
