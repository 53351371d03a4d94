package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	gitignore "github.com/sabhiram/go-gitignore"
	"knative.dev/func/pkg/builders"
	"knative.dev/func/pkg/functions"
	"knative.dev/func/pkg/oci"
)

// ignoreFile lists, in the form of .gitignore, the files that the image does not need.
const ignoreFile = ".funcignore"

// builder makes an OCI image without Docker, at .func/builds/last/oci.
type builder struct {
	platforms []string // os/architecture; none: those that the CLI suggests
	verbose   bool
}

// Build has the CLI's own builder make the image, from a copy of the function
// without what .funcignore names: it packs the directory that it is given.
func (b *builder) Build(ctx context.Context, f functions.Function, platforms []functions.Platform) (err error) {
	for _, name := range b.platforms {
		system, architecture, ok := strings.Cut(name, "/")
		if !ok {
			return fmt.Errorf("a platform is written like linux/amd64, not %q", name)
		}
		architecture, variant, _ := strings.Cut(architecture, "/")
		platforms = append(platforms, functions.Platform{OS: system, Architecture: architecture, Variant: variant})
	}
	if functions.EmbeddedTemplatesFS, err = scaffolding(f.Root); err != nil {
		return err
	}
	if err := modMod(ctx); err != nil {
		return err
	}
	data := filepath.Join(f.Root, functions.RunDataDir)
	if err := os.MkdirAll(data, 0o755); err != nil {
		return err
	}
	// Below the data directory, which no copy takes along, so that the result need
	// only be renamed.
	staged, err := os.MkdirTemp(data, "stage-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staged)) }()
	// MkdirTemp's 0700 would be the mode of /func in the image, whose user is another.
	if err := os.Chmod(staged, 0o755); err != nil {
		return err
	}
	if err := stage(f.Root, staged); err != nil {
		return err
	}
	copied := f
	copied.Root = staged
	if err := oci.NewBuilder(builders.Host, b.verbose).Build(ctx, copied, platforms); err != nil {
		return err
	}
	builds := filepath.Join(data, "builds")
	if err := os.RemoveAll(builds); err != nil {
		return err
	}
	return os.Rename(filepath.Join(staged, functions.RunDataDir, "builds"), builds)
}

// stage copies what is below root to the directory to, but for .func and what
// .funcignore names. Links are copied as links.
func stage(root, to string) error {
	ignored, err := gitignore.CompileIgnoreFile(filepath.Join(root, ignoreFile))
	if errors.Is(err, fs.ErrNotExist) {
		ignored, err = gitignore.CompileIgnoreLines(), nil
	}
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if name == functions.RunDataDir || ignored.MatchesPath(name) || entry.IsDir() && ignored.MatchesPath(name+"/") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		switch {
		case entry.IsDir():
			return os.Mkdir(target, 0o755)
		case info.Mode()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		case !info.Mode().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		// The image's user does not own the files, so all of them must be readable.
		return os.WriteFile(target, content, info.Mode()|0o444)
	})
}
