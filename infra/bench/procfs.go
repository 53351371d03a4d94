package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	_, used, err := parentAndCPU(fmt.Sprintf("/proc/%d/stat", pid))
	return used, err
}

// cpuOfChildren is how much CPU the children of a process have used that still run.
func cpuOfChildren(pid int) (total time.Duration, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range all {
		if parent, used, err := parentAndCPU(path); err == nil && parent == pid { // others have ended
			total += used
		}
	}
	return total, err
}

// parentAndCPU reads a process's file of that name.
func parentAndCPU(path string) (parent int, used time.Duration, err error) {
	stat, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	// After the name, which may hold anything, the parent is the second field, and utime and
	// stime are the 12th and 13th.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, 0, fmt.Errorf("no times in %s", path)
	}
	parent, errParent := strconv.Atoi(fields[1])
	user, errUser := strconv.Atoi(fields[11])
	system, errSystem := strconv.Atoi(fields[12])
	return parent, time.Duration(user+system) * clockTick, errors.Join(errParent, errUser, errSystem)
}
