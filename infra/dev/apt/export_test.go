package apt

import (
	"context"
	"io"
)

const (
	UnpackPrefix  = unpackPrefix
	UnpackedRedis = unpackedRedis
)

var LibrariesIn = librariesIn

// EnsureAnew is Ensure that ignores the machine's programs and, if asked, its package
// lists.
func EnsureAnew(ctx context.Context, dir string, progress io.Writer, ignoreLists bool) (Binaries, error) {
	f := finder{progress: progress, ignoreSystem: true, ignoreLists: ignoreLists}
	return f.ensure(ctx, dir)
}
