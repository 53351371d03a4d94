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
	// tailLines and tailBytes bound what errors quote from a log.
	tailLines = 10
	tailBytes = 4 << 10
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

// printed returns what this run printed, up to LogLimitBytes.
func (l logFile) printed() string {
	f, err := os.Open(l.path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, _ := io.ReadAll(io.NewSectionReader(f, l.from, LogLimitBytes))
	return string(b)
}

// LastLines returns the last tailLines lines of s, at most tailBytes, or otherwise if s
// is blank.
func LastLines(s, otherwise string) string {
	s = strings.TrimSpace(s)
	s = s[max(0, len(s)-tailBytes):]
	if s == "" {
		return otherwise
	}
	lines := strings.Split(s, "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
