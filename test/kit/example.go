package kit

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
)

// Example is the testing.TB that an Example function does not have, so that it gets
// the same servers as tests:
//
//	t := kit.ForExample()
//	defer t.End()
//	pool := kit.Pool(t)
//
// A failure panics, which fails the example.
type Example struct {
	testing.TB // nil: methods that are not below panic
	context    context.Context
	cancel     context.CancelFunc
	cleanups   []func()
}

// ForExample begins an example; call End when it is over.
func ForExample() *Example {
	e := &Example{}
	e.context, e.cancel = context.WithCancel(context.Background())
	return e
}

// End runs the cleanups, the last first.
func (e *Example) End() {
	e.cancel()
	for _, do := range slices.Backward(e.cleanups) {
		do()
	}
}

// Helper does nothing.
func (e *Example) Helper() {}

// Name is the same for all examples.
func (e *Example) Name() string { return "Example" }

// Context ends before the cleanups begin, like a test's.
func (e *Example) Context() context.Context { return e.context }

// Cleanup registers do to be called by End.
func (e *Example) Cleanup(do func()) { e.cleanups = append(e.cleanups, do) }

// TempDir returns a new directory, which End removes.
func (e *Example) TempDir() string {
	dir, err := os.MkdirTemp("", "example")
	Must(e, err)
	e.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Error panics.
func (e *Example) Error(args ...any) { panic(fmt.Sprint(args...)) }

// Errorf panics.
func (e *Example) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// Fatal panics.
func (e *Example) Fatal(args ...any) { e.Error(args...) }

// Fatalf panics.
func (e *Example) Fatalf(format string, args ...any) { e.Errorf(format, args...) }
