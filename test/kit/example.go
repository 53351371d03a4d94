package kit

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
)

// Example stands in for the test that an Example function does not have, so that it is
// given the same servers:
//
//	t := kit.ForExample()
//	defer t.End()
//	pool := kit.Pool(t)
//
// What would fail the test panics, which fails the example.
type Example struct {
	testing.TB // nil: what is not below has no meaning here
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

// End does what Cleanup was told, the last first.
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

// Context ends before the cleanups begin, as a test's.
func (e *Example) Context() context.Context { return e.context }

// Cleanup has End call do.
func (e *Example) Cleanup(do func()) { e.cleanups = append(e.cleanups, do) }

// TempDir is removed by End.
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
