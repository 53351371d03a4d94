package main

import "time"

// sizes say how much is measured.
type sizes struct {
	rounds       int
	window       time.Duration // of one measurement of a rate
	relayRows    int
	backlogs     [2]int // shallow, deep
	loaded       int    // rows beside those that are due
	claims       int    // rounds of claims, 20 claims each
	events       int
	slow         int // events at one transaction each
	paced        time.Duration
	granted      int           // and then drained
	front        time.Duration // of one measurement at the front door
	streams      int           // open at once
	peerBacklogs [3]int
	starts       int
}

var fullSizes = sizes{
	rounds: 3, window: 2500 * time.Millisecond, relayRows: 20_000, backlogs: [2]int{10_000, 120_000},
	loaded: 1_000_000, claims: 5, events: 20_000, slow: 1_000, paced: 7 * time.Second, granted: 10_000, front: 1500 * time.Millisecond, streams: 10_000, starts: 11,
	peerBacklogs: [3]int{10_000, 40_000, 120_000},
}

var quickSizes = sizes{
	rounds: 1, window: time.Second, relayRows: 2_000, backlogs: [2]int{1_000, 6_000},
	loaded: 20_000, claims: 1, events: 2_000, slow: 100, paced: 2 * time.Second, granted: 500, front: 300 * time.Millisecond, streams: 500, starts: 3,
	peerBacklogs: [3]int{500, 1_000, 2_000},
}
