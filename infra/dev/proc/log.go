package proc

import (
	"io"
	"os"
	"strings"
)

const (
	// LogLimitBytes is the size above which a log file is emptied when its
	// server starts.
	LogLimitBytes = 10 << 20
	// tailBytes and tailLines bound what errors quote from a log.
	tailBytes = 4 << 10
	tailLines = 10
)

// logFile is a server's log. from is where this run begins, so that an error quotes
// nothing of an earlier run.
type logFile struct {
	path string
	from int64
}

// openLog opens the log for appending, emptying one that grew too large. The
// caller closes the file once the server has it.
func openLog(path string) (*os.File, logFile, error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	if info, err := os.Stat(path); err == nil && info.Size() > LogLimitBytes {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, privateFile)
	if err != nil {
		return nil, logFile{}, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, logFile{}, err
	}
	return f, logFile{path: path, from: info.Size()}, nil
}

// tail returns the last lines of this run, or a note that there are none.
func (l logFile) tail() string {
	const nothing = "(it printed nothing)"
	f, err := os.Open(l.path)
	if err != nil {
		return nothing
	}
	defer f.Close()
	from := l.from
	if info, err := f.Stat(); err == nil {
		from = max(from, info.Size()-tailBytes)
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, from, tailBytes))
	return LastLines(string(b), nothing)
}

// LastLines returns the last tailLines lines of s, or otherwise if s is blank.
func LastLines(s, otherwise string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return otherwise
	}
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
