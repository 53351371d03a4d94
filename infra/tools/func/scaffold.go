package main

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"knative.dev/func/generate"
	"knative.dev/func/pkg/filesystem"
)

// scaffoldModule is how the CLI's scaffolding names every function's module.
const scaffoldModule = "function"

// unversioned is the version that the go command writes for a replaced module.
const unversioned = "v0.0.0-00010101000000-000000000000"

// scaffolding returns the CLI's scaffolding, made to build the function at root: it
// imports it by its own path, at its own version of Go, with the sums that its go.sum
// names.
func scaffolding(root string) (filesystem.Filesystem, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	function, err := modfile.Parse("go.mod", mod, nil)
	if err != nil {
		return nil, err
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	templates, err := zip.NewReader(bytes.NewReader(generate.TemplatesZip), int64(len(generate.TemplatesZip)))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	writer := zip.NewWriter(&out)
	for _, file := range templates.File {
		if err := func() error {
			reader, err := file.Open()
			if err != nil {
				return err
			}
			defer reader.Close()
			content, err := io.ReadAll(reader)
			if err != nil {
				return err
			}
			if ok, _ := path.Match("go/scaffolding/*/*", file.Name); ok {
				if content, err = adapted(path.Base(file.Name), content, function, sums); err != nil {
					return fmt.Errorf("%s: %w", file.Name, err)
				}
			}
			header := zip.FileHeader{Name: file.Name, Method: zip.Store}
			header.SetMode(file.Mode())
			entry, err := writer.CreateHeader(&header)
			if err != nil {
				return err
			}
			_, err = entry.Write(content)
			return err
		}(); err != nil {
			return nil, err
		}
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	archive, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		return nil, err
	}
	return filesystem.NewZipFS(archive), nil
}

// adapted is one file of the scaffolding, for this function.
func adapted(name string, content []byte, function *modfile.File, sums []byte) ([]byte, error) {
	switch name {
	case "main.go":
		return bytes.Replace(content, []byte(`"`+scaffoldModule+`"`), []byte(`"`+function.Module.Mod.Path+`"`), 1), nil
	case "go.sum":
		return append(append(content, '\n'), sums...), nil
	case "go.mod":
		return requirements(content, function)
	}
	return content, nil
}

// requirements returns a go.mod that requires function, which is linked as ./f. What
// function requires follows from its own go.mod; the go command adds it ([modMod]).
func requirements(content []byte, function *modfile.File) ([]byte, error) {
	scaffold, err := modfile.Parse("go.mod", content, nil)
	if err != nil {
		return nil, err
	}
	itself := function.Module.Mod.Path
	steps := []error{
		scaffold.DropRequire(scaffoldModule), scaffold.DropReplace(scaffoldModule, ""),
		scaffold.AddRequire(itself, unversioned), scaffold.AddReplace(itself, "", "./f", ""),
		scaffold.AddGoStmt(function.Go.Version),
	}
	for _, replaced := range function.Replace {
		to := replaced.New
		if to.Version == "" && !filepath.IsAbs(to.Path) {
			to.Path = "./" + path.Join("f", to.Path)
		}
		steps = append(steps, scaffold.AddReplace(replaced.Old.Path, replaced.Old.Version, to.Path, to.Version))
	}
	if err := errors.Join(steps...); err != nil {
		return nil, err
	}
	scaffold.Cleanup()
	return scaffold.Format()
}

// modMod lets the go command complete the scaffolding's go.mod, and nothing else:
// with the versions that the function's names, or later ones that the CLI's own
// middleware needs.
func modMod(ctx context.Context) error {
	flags, err := exec.CommandContext(ctx, "go", "env", "GOFLAGS").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", err)
	}
	return os.Setenv("GOFLAGS", strings.TrimSpace(strings.TrimSpace(string(flags))+" -mod=mod"))
}
