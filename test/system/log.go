package system

import (
	"bytes"
	"sync"
)

// Log is a log that several goroutines write to.
type Log struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (b *Log) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.Write(p)
}

func (b *Log) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}

func (b *Log) tail(n int) string {
	text := b.String()
	return text[max(0, len(text)-n):]
}
