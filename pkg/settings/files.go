package settings

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"strings"
)

// maxFileBytes is the longest value that a file may hold.
const maxFileBytes = 64 << 10

// withFiles gives settings their values from files where the environment has a path
// in NAME_FILE in place of a value in NAME: platforms mount secrets. A line break at
// the end is not part of the value. Errors name the variable and never the content.
func withFiles(environment map[string]string) (map[string]string, error) {
	filled, copied := environment, false
	fields := reflect.TypeFor[Settings]()
	for i := range fields.NumField() {
		name := fields.Field(i).Tag.Get("env")
		path := environment[name+"_FILE"]
		if path == "" {
			continue
		}
		if environment[name] != "" {
			return nil, fmt.Errorf("settings: %s and %s_FILE are both set", name, name)
		}
		content, err := os.ReadFile(path)
		if err == nil && len(content) > maxFileBytes {
			err = fmt.Errorf("more than %d bytes", maxFileBytes)
		}
		if err != nil {
			var reason *fs.PathError
			if errors.As(err, &reason) {
				err = reason.Err
			}
			return nil, fmt.Errorf("settings: %s_FILE cannot be read: %w", name, err)
		}
		if !copied {
			filled, copied = maps.Clone(environment), true
		}
		filled[name] = strings.TrimRight(string(content), "\r\n")
	}
	return filled, nil
}
