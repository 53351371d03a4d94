// Package compose reads compose.yaml as Docker's compose does, by its own library, and
// reports what would not work or would not be safe. It needs no Docker.
package compose

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// Load reads a compose file with every profile on, and with no variable set but those of
// environment ("NAME=value"). It is strict: an unknown name, a service or a volume that
// is used and not defined is an error.
func Load(ctx context.Context, file string, content []byte, environment ...string) (*types.Project, error) {
	path, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	project, err := loader.LoadWithContext(ctx, types.ConfigDetails{
		WorkingDir:  filepath.Dir(path),
		ConfigFiles: []types.ConfigFile{{Filename: path, Content: content}},
		Environment: types.NewMapping(environment),
	}, func(o *loader.Options) {
		o.Profiles = []string{"*"}
		o.ResolvePaths = true
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return project, nil
}
