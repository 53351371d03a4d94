package function_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/act"
	"github.com/miniserversystem/miniserver/pkg/entitlement"
	"github.com/miniserversystem/miniserver/pkg/matchmaking"
	"github.com/miniserversystem/miniserver/pkg/notification"
	"github.com/miniserversystem/miniserver/pkg/outbox"
	"github.com/miniserversystem/miniserver/pkg/transfer"
)

const module = "github.com/miniserversystem/miniserver"

// layers is the import rule: a package may import packages of lower layers only.
var layers = [][]string{
	{"pkg/fault", "pkg/cache", "pkg/settings", "pkg/spans", "proto/*"},
	{"pkg/telemetry", "pkg/cursor", "pkg/id", "pkg/problem", "pkg/postgres", "pkg/event", "pkg/auth", "pkg/session", "pkg/limit", "pkg/idempotency"},
	{"pkg/act", "pkg/groupcommit"},
	{"pkg/lease", "pkg/deadletter"},
	{"pkg/outbox"},
	{"pkg/account", "pkg/entitlement", "pkg/matchmaking", "pkg/notification", "pkg/transfer"},
	{"pkg/agones", "pkg/jetstream", "pkg/live", "pkg/rabbitmq", "pkg/webhook", "migrations"},
	{"pkg/rights"},
	{"pkg/process"},
	{"pkg/fn/tick", "pkg/fn/transport"},
	{"pkg/fn"},
	{"functions/internal/*"},
	{"functions/*"},
	{"functions/gateway"},
	{"functions"},
	{"."},
	// Deployed programs; they must not import the servers of development and tests.
	{"infra/miniserver", "infra/lambda"},
	{"infra/dev/proc", "infra/dev/issuer", "infra/dev/browser", "infra/keycloak"},
	{"infra/dev/home"},
	{"infra/dev/apt"},
	{"infra/dev/*"},
	{"infra/dev/shop", "test/kit", "test/kit/program"},
	{"test/kit/identity"},
	{"infra/*"},
	{"test/system", "test/standin"},
	{"test/*"},
}

// forTests are packages that only tests and each other may import.
var forTests = []string{"infra/dev/servertest", "test/kit", "test/kit/identity", "test/kit/program", "test/kit/brokertest", "test/system", "test/deployed", "test/standin", "test/conformance"}

// domains must depend neither on each other nor on how they are reached.
var domains = []string{"pkg/account", "pkg/entitlement", "pkg/matchmaking", "pkg/notification", "pkg/transfer"}

// notForDomains are packages that a domain must not depend on, not even indirectly.
var notForDomains = []string{"net/http", "github.com/cloudevents", "github.com/nats-io", "github.com/danielgtaylor", "github.com/aws", "knative.dev"}

type goPackage struct {
	ImportPath   string
	Name         string
	Imports      []string
	Deps         []string
	TestImports  []string
	XTestImports []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Imports,Deps,TestImports,XTestImports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var packages []goPackage
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var p goPackage
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
}

// local is a package's path in this module, "." for the root; ok is false for others.
func local(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

func layerOf(name string) int {
	for i, names := range layers {
		if slices.Contains(names, name) {
			return i
		}
	}
	for i, patterns := range layers {
		for _, pattern := range patterns {
			prefix, many := strings.CutSuffix(pattern, "/*")
			if name == pattern || many && strings.HasPrefix(name, prefix+"/") && (prefix != "functions" || !strings.HasPrefix(name, "functions/internal/")) {
				return i
			}
		}
	}
	return -1
}

func TestImportsPointDownwards(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		name, ok := local(p.ImportPath)
		if !ok {
			continue
		}
		layer := layerOf(name)
		if layer < 0 {
			t.Errorf("%s has no layer; give it one in layers", name)
			continue
		}
		for _, imported := range p.Imports {
			other, ok := local(imported)
			if !ok {
				continue
			}
			if slices.Contains(forTests, other) && !slices.Contains(forTests, name) {
				t.Errorf("%s imports %s, which is for tests only", name, other)
			}
			if below := layerOf(other); below >= layer {
				t.Errorf("%s imports %s, which is not below it", name, other)
			}
		}
		if slices.Contains([]string{"util", "utils", "common", "helpers", "models", "misc"}, path.Base(name)) {
			t.Errorf("%s: name a package after what it is", name)
		}
	}
}

func TestDomainsStandAlone(t *testing.T) {
	t.Parallel()
	found := 0
	for _, p := range listPackages(t) {
		name, _ := local(p.ImportPath)
		if !slices.Contains(domains, name) {
			continue
		}
		found++
		for _, dependency := range p.Deps {
			for _, forbidden := range notForDomains {
				if dependency == forbidden || strings.HasPrefix(dependency, forbidden+"/") {
					t.Errorf("%s depends on %s, which no domain may", name, dependency)
				}
			}
			if other, ok := local(dependency); ok && other != name && slices.Contains(domains, other) {
				t.Errorf("%s depends on the domain %s; between domains there are only events", name, other)
			}
		}
	}
	if found != len(domains) {
		t.Fatalf("found %d of %d domains", found, len(domains))
	}
}

// adapters maps a platform's libraries to the only package that may import them.
var adapters = map[string]string{"github.com/aws": "infra/lambda", "github.com/awslabs": "infra/lambda"}

func TestPlatformsAreAdaptersOnly(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, p := range listPackages(t) {
		name, _ := local(p.ImportPath)
		for _, imported := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for library, adapter := range adapters {
				if imported != library && !strings.HasPrefix(imported, library+"/") {
					continue
				}
				used[library] = true
				if name != adapter {
					t.Errorf("%s imports %s, which only %s may", name, imported, adapter)
				}
			}
		}
	}
	for library, adapter := range adapters {
		if !used[library] {
			t.Errorf("%s does not import %s", adapter, library)
		}
	}
}

// The diagrams in docs/architecture.md show exactly the states of the code.
func TestDiagramsShowTheStates(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	machines := map[string][]string{
		"entitlement":   {string(entitlement.Active), string(entitlement.Revoked)},
		"outbox_events": {outbox.Pending, outbox.InFlight, outbox.Published, outbox.Failed},
		"tickets":       {matchmaking.Queued, matchmaking.Matched, matchmaking.Cancelled, matchmaking.Expired},
		"keys":          {transfer.InProgress, transfer.Succeeded, transfer.Failed},
		"acts":          {act.Running, act.Stopped, act.Done},
		"notifications": {notification.Pending, notification.Processing, notification.Sent, notification.Failed},
	}
	for machine, states := range machines {
		block := regexp.MustCompile("(?s)### " + machine + "\n.*?```mermaid\nstateDiagram-v2\n(.*?)```").FindSubmatch(text)
		if block == nil {
			t.Errorf("no diagram under ### %s", machine)
			continue
		}
		shown := map[string]bool{}
		for _, arrow := range regexp.MustCompile(`(?m)^\s*(\S+) --> ([^\s:]+)`).FindAllSubmatch(block[1], -1) {
			shown[string(arrow[1])], shown[string(arrow[2])] = true, true
		}
		delete(shown, "[*]")
		for _, state := range states {
			if !shown[state] {
				t.Errorf("%s: %s is not in its diagram", machine, state)
			}
			delete(shown, state)
		}
		for state := range shown {
			t.Errorf("%s: the diagram shows %s, which the code does not know", machine, state)
		}
	}
}

// Every test that a table of promises names is in the package that it names.
func TestProofsExist(t *testing.T) {
	t.Parallel()
	written := map[string][]string{} // by package
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "." {
			return cmp.Or(err, error(fs.SkipDir))
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllSubmatch(text, -1) {
			written[filepath.Dir(path)] = append(written[filepath.Dir(path)], string(found[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("docs/failure-modes.md")
	if err != nil {
		t.Fatal(err)
	}
	proofs := regexp.MustCompile(`go test (\S+) -run '([^']+)'`).FindAllSubmatch(text, -1)
	if len(proofs) < 50 {
		t.Fatalf("docs/failure-modes.md has only %d proofs, want 50 or more", len(proofs))
	}
	for _, proof := range proofs {
		folder := filepath.Clean(string(proof[1]))
		for pattern := range strings.SplitSeq(string(proof[2]), `\|`) {
			name, _, _ := strings.Cut(pattern, "/") // of a part of the test
			if !slices.ContainsFunc(written[folder], regexp.MustCompile(name).MatchString) {
				t.Errorf("docs/failure-modes.md names %s in %s, which has no such test", name, folder)
			}
		}
	}
}
