package image_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"go.yaml.in/yaml/v4"

	"github.com/miniserversystem/miniserver/infra/image/compose"
	"github.com/miniserversystem/miniserver/test/kit"
)

// koConfig is what both ways of building share.
type koConfig struct {
	DefaultBaseImage string `yaml:"defaultBaseImage"`
	Builds           []struct {
		ID      string
		Env     []string
		Flags   []string
		Ldflags []string
	}
}

func readKo(t testing.TB) koConfig {
	t.Helper()
	content, err := os.ReadFile(".ko.yaml")
	kit.Must(t, err)
	var config koConfig
	kit.Must(t, yaml.Unmarshal(content, &config))
	if len(config.Builds) != 1 || config.DefaultBaseImage == "" {
		t.Fatalf(".ko.yaml: %+v", config)
	}
	return config
}

// dockerfile reads the Dockerfile with BuildKit's own parser.
func dockerfile(t testing.TB) []instructions.Stage {
	t.Helper()
	content, err := os.ReadFile("infra/image/Dockerfile")
	kit.Must(t, err)
	tree, err := parser.Parse(bytes.NewReader(content))
	kit.Must(t, err)
	for _, warning := range tree.Warnings {
		t.Errorf("Dockerfile: %s", warning.Short)
	}
	stages, _, err := instructions.Parse(tree.AST, nil)
	kit.Must(t, err)
	if len(stages) != 2 {
		t.Fatalf("the Dockerfile has %d stages", len(stages))
	}
	return stages
}

// The Dockerfile makes the image that ko makes: its base, user and flags; and the health
// check of compose.yaml runs the program that is in it.
func TestDockerfileIsAsKo(t *testing.T) {
	t.Parallel()
	config, stages := readKo(t), dockerfile(t)
	if got := stages[1].BaseName; got != config.DefaultBaseImage {
		t.Errorf("its base is %s, that of .ko.yaml %s", got, config.DefaultBaseImage)
	}
	var user string
	var entrypoint []string
	for _, command := range stages[1].Commands {
		switch c := command.(type) {
		case *instructions.UserCommand:
			user = c.User
		case *instructions.EntrypointCommand:
			if entrypoint = c.CmdLine; c.PrependShell {
				t.Error("its entrypoint needs a shell")
			}
		case *instructions.RunCommand:
			t.Errorf("it runs %s in an image without a shell", c.CmdLine)
		}
	}
	if user != nobody || !slices.Equal(entrypoint, []string{program}) {
		t.Errorf("it runs %q as %q", entrypoint, user)
	}
	build := buildCommand(t, stages[0])
	for _, one := range config.Builds {
		for _, part := range append(append(slices.Clone(one.Env), one.Flags...), strings.Join(one.Ldflags, " ")) {
			if !strings.Contains(build, part) {
				t.Errorf("it builds by %s, and .ko.yaml has %s", build, part)
			}
		}
	}
	content, err := os.ReadFile("compose.yaml")
	kit.Must(t, err)
	project, err := compose.Load(t.Context(), "compose.yaml", content)
	kit.Must(t, err)
	if got, want := project.Services["miniserver"].HealthCheck.Test, []string{"CMD", program, "ready"}; !slices.Equal(got, want) {
		t.Errorf("compose.yaml asks by %q, want %q", got, want)
	}
}

// buildCommand is the shell command that builds.
func buildCommand(t testing.TB, stage instructions.Stage) string {
	t.Helper()
	for _, command := range stage.Commands {
		if run, ok := command.(*instructions.RunCommand); ok && strings.Contains(run.CmdLine[0], "go build") {
			return run.CmdLine[0]
		}
	}
	t.Fatal("the Dockerfile does not build")
	return ""
}

// The files that .dockerignore leaves are enough for the Dockerfile's build command, and
// no more than what Go reads.
func TestDockerContext(t *testing.T) {
	t.Parallel()
	context, out := dockerContext(t), t.TempDir()
	if leaked, _ := filepath.Glob(filepath.Join(context, ".*")); len(leaked) > 0 {
		t.Errorf("the context has %q", leaked)
	}
	build := strings.ReplaceAll(buildCommand(t, dockerfile(t)[0]), "/out/", out+"/")
	command := exec.Command("sh", "-c", build)
	command.Dir = context
	command.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH)
	if said, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if info, err := os.Stat(filepath.Join(out, program)); err != nil || info.Mode()&0o111 == 0 {
		t.Error(err)
	}
}

// dockerContext copies the files that would be sent to the Docker engine.
func dockerContext(t testing.TB) string {
	t.Helper()
	content, err := os.ReadFile(".dockerignore")
	kit.Must(t, err)
	patterns, err := ignorefile.ReadAll(bytes.NewReader(content))
	kit.Must(t, err)
	ignored, err := patternmatcher.New(patterns)
	kit.Must(t, err)
	context := t.TempDir()
	kit.Must(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		if entry.IsDir() && (path == ".git" || path == ".local") { // large
			if skip, err := ignored.MatchesOrParentMatches(path); err != nil || skip {
				return fs.SkipDir
			}
			t.Errorf("%s would be sent", path)
			return fs.SkipDir
		}
		skip, err := ignored.MatchesOrParentMatches(path)
		if err != nil || skip || entry.IsDir() {
			return err
		}
		file, err := os.ReadFile(path)
		kit.Must(t, err)
		to := filepath.Join(context, path)
		kit.Must(t, os.MkdirAll(filepath.Dir(to), 0o755))
		return os.WriteFile(to, file, 0o644)
	}))
	return context
}
