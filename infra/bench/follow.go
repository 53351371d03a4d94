package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http/httputil"
	"strconv"
	"time"
)

const (
	streamLine = 64 << 10 // longer than any line of a stream
	streamWait = 30 * time.Second
)

// told is an event that came over a stream.
type told struct {
	purchase string
	at       time.Time
}

// follow opens a stream and sends its events to events, which may be nil, until it is
// closed.
func follow(ctx context.Context, address, path, header string, events chan<- told) (closing func(), err error) {
	c, err := dial(ctx, address, "")
	if err != nil {
		return nil, err
	}
	body, err := c.open(newAsk(address, path, header, "").request)
	if err != nil {
		c.close()
		return nil, err
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, streamLine)
	go func() {
		for lines.Scan() {
			at := time.Now()
			data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
			var n struct {
				Payload struct {
					SourceID string `json:"source_id"`
				}
			}
			if ok && events != nil && json.Unmarshal(data, &n) == nil {
				select {
				case events <- told{n.Payload.SourceID, at}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return c.close, nil
}

// open sends a request and returns its answer, which continues until the client is
// closed.
func (c *client) open(request []byte) (io.Reader, error) {
	if err := c.conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(request); err != nil {
		return nil, err
	}
	status, length, err := c.readHead()
	if err == nil && (status != "200" || length >= 0) {
		err = fmt.Errorf("not an open stream: status %s", status)
	}
	if err != nil {
		return nil, err
	}
	return httputil.NewChunkedReader(c.in), c.conn.SetDeadline(time.Time{})
}

// live makes total grants to players at a steady rate and returns how long each took to
// come over their streams.
func (b *bench) live(ctx context.Context, s *system, token string, players []player, events <-chan told, total int) ([]time.Duration, error) {
	firstKey := 100_000_000_000_000_000 + rand.IntN(800_000_000_000_000_000)
	sentAt := make([]time.Time, total)
	arrived := make(chan []time.Time, 1)
	go func() {
		at, left := make([]time.Time, total), total
		for enough := time.After(time.Duration(total/pacedPerSecond)*time.Second + streamWait); left > 0; {
			select {
			case e := <-events:
				n, err := strconv.Atoi(e.purchase)
				if n -= firstKey; err == nil && n >= 0 && n < total && at[n].IsZero() {
					at[n] = e.at
					left--
				}
			case <-enough:
				left = 0
			case <-ctx.Done():
				left = 0
			}
		}
		arrived <- at
	}()
	if err := b.steadily(ctx, s, token, total, func(c *client, n int) error {
		sentAt[n] = time.Now()
		return c.grant(players[n%len(players)].userID, strconv.Itoa(firstKey+n))
	}); err != nil {
		return nil, err
	}
	took := make([]time.Duration, total)
	for n, at := range <-arrived {
		if at.IsZero() {
			return nil, fmt.Errorf("grant %d of %d did not come over its stream within %s", n, total, streamWait)
		}
		took[n] = at.Sub(sentAt[n])
	}
	return took, nil
}
