package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Values that memoryOf can return, as /proc names them.
const (
	peakMemory    = "VmHWM:" // the most that was ever resident
	currentMemory = "VmRSS:" // what is resident now
)

// memoryOf is a process's memory in MiB.
func memoryOf(pid int, what string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, what); ok {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("no %s of process %d", what, pid)
}

// clockTick is the unit of the times in /proc: Linux shows 100 a second whatever it
// counts in.
const clockTick = 10 * time.Millisecond

// cpuOf is how much CPU a process has used, to a hundredth of a second.
func cpuOf(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// After the name, which may hold anything, utime and stime are the 12th and 13th.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("no times of process %d", pid)
	}
	user, err := strconv.Atoi(string(fields[11]))
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(string(fields[12]))
	return time.Duration(user+system) * clockTick, err
}
