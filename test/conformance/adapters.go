package conformance

import (
	"maps"
	"testing"

	"github.com/miniserversystem/miniserver/test/kit/program"
)

// OneProcess is an adapter for a program that holds all functions in one process, ticks
// them by its own schedule, and listens on PORT.
func OneProcess(name, path string) Adapter {
	return Adapter{
		Name: name,
		Start: func(t testing.TB, environment map[string]string, _ ...string) Instance {
			port := FreePort(t)
			return &Served{
				Paths: OwnPaths, Front: "all", Address: map[string]string{"all": onLoopback(port)},
				Programs: []*program.Program{startProgram(t, path, with(environment, "PORT", port))},
			}
		},
		Refuse: func(t testing.TB, environment map[string]string) (int, string) {
			return refused(t, path, with(environment, "PORT", FreePort(t)))
		},
	}
}

// with returns environment with more settings, as names and values.
func with(environment map[string]string, pairs ...string) map[string]string {
	more := maps.Clone(environment)
	for i := 0; i < len(pairs); i += 2 {
		more[pairs[i]] = pairs[i+1]
	}
	return more
}

// Processes is an adapter for a program that runs one function in each process, ticked
// from outside, as on Knative and OpenFaaS. platform returns the settings that the
// platform adds for a function's process; nil for none.
func Processes(name, path string, paths Paths, platform func(t testing.TB, function string, environment map[string]string) map[string]string) Adapter {
	return Adapter{
		Name: name, Ticked: true,
		Start: func(t testing.TB, environment map[string]string, functions ...string) Instance {
			s := &Served{Paths: paths, Front: functions[0], Address: map[string]string{}}
			ports, where := map[string]string{}, ""
			for _, function := range functions {
				ports[function] = FreePort(t)
				s.Address[function] = onLoopback(ports[function])
				where += "," + function + "=http://" + s.Address[function]
			}
			for _, function := range functions {
				own := with(environment, "FUNCTION", function, "PORT", ports[function], "FUNCTION_URL", where[1:])
				if function != functions[0] {
					// Only the gateway may sign.
					delete(own, "IDENTITY_SIGNING_KEY")
				}
				if platform != nil {
					own = platform(t, function, own)
				}
				s.Programs = append(s.Programs, startProgram(t, path, own))
			}
			return s
		},
		Refuse: func(t testing.TB, environment map[string]string) (int, string) {
			if _, asked := environment["FUNCTION"]; !asked {
				environment = with(environment, "FUNCTION", "grant")
			}
			return refused(t, path, with(environment, "PORT", FreePort(t)))
		},
	}
}
