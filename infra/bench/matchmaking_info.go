package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// empty removes everything and waits until Redis has freed it.
func (q *queues) empty(ctx context.Context) error {
	// At once, it would hold up Redis for longer than a function waits for it.
	err := q.client.FlushDBAsync(ctx).Err()
	for left := 1.0; err == nil && left > 0; {
		time.Sleep(10 * time.Millisecond)
		left, err = q.info(ctx, "memory", unfreed)
	}
	return err
}

// Numbers that info can return, as Redis names them.
const (
	usedMemory = "used_memory:"              // in bytes
	unfreed    = "lazyfree_pending_objects:" // removed, and in memory still
	userCPU    = "used_cpu_user_main_thread:"
	systemCPU  = "used_cpu_sys_main_thread:" // both in seconds
)

// info is the sum of some numbers of a section.
func (q *queues) info(ctx context.Context, section string, names ...string) (sum float64, err error) {
	text, err := q.client.Info(ctx, section).Result()
	for _, name := range names {
		_, value, _ := strings.Cut(text, "\n"+name)
		value, _, _ = strings.Cut(value, "\r\n")
		number, failed := strconv.ParseFloat(value, 64)
		sum, err = sum+number, errors.Join(err, failed)
	}
	return sum, err
}

// cpu is the CPU time that Redis's script thread has used.
func (q *queues) cpu(ctx context.Context) (time.Duration, error) {
	seconds, err := q.info(ctx, "cpu", userCPU, systemCPU)
	return time.Duration(seconds * float64(time.Second)), err
}
