package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// ask is a request and what its answer must hold.
type ask struct {
	request []byte
	want    string
}

func newAsk(address, path, header, want string) ask {
	return ask{[]byte("GET " + path + " HTTP/1.1\r\nHost: " + address + "\r\nAccept: application/json\r\n" + header + "\r\n"), want}
}

// ask sends a request and fails unless its answer is a 200 that holds a.want.
func (c *client) ask(a ask) error {
	body, err := c.fetch(a.request)
	if err == nil && !bytes.Contains(body, []byte(a.want)) {
		err = fmt.Errorf("%q is not in %.500q", a.want, body)
	}
	return err
}

// probe is one kind of request, with the results of its rounds.
type probe struct {
	name, address string
	pid           int // of the process that serves it
	asks          []ask
	p50, p99, cpu []time.Duration // the last a request
}

// warm sends every request once, and then for a while, so that later ones need no first
// lookup or connection.
func (p *probe) warm(ctx context.Context, window time.Duration) error {
	c, err := dial(ctx, p.address, "")
	if err != nil {
		return err
	}
	defer c.close()
	for _, a := range p.asks {
		if err := c.ask(a); err != nil {
			return err
		}
	}
	_, err = p.run(window)(ctx)
	p.p50, p.p99, p.cpu = nil, nil, nil
	return err
}

// run is an arm. Any answer but the right one ends it, also a 429.
func (p *probe) run(window time.Duration) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		before, err := cpuOf(p.pid)
		if err != nil {
			return 0, err
		}
		rate, took, err := clocked(ctx, frontClients, window, asker(p.address, p.asks))
		after, failed := cpuOf(p.pid)
		if err = errors.Join(err, failed); err != nil {
			return 0, err
		}
		p.p50, p.p99 = append(p.p50, percentile(took, 0.5)), append(p.p99, percentile(took, 0.99))
		p.cpu = append(p.cpu, (after-before)/time.Duration(len(took)))
		return rate, nil
	}
}

// asker opens clients that send any of the requests.
func asker(address string, asks []ask) func(context.Context) (func() error, func(), error) {
	return func(ctx context.Context) (func() error, func(), error) {
		c, err := dial(ctx, address, "")
		if err != nil {
			return nil, nil, err
		}
		return func() error { return c.ask(asks[rand.IntN(len(asks))]) }, c.close, nil
	}
}

// text is the median of the rounds.
func (p *probe) text(rate float64) string {
	return fmt.Sprintf("%s, p50 %s, p99 %s", perSecond(rate), ms(percentile(p.p50, 0.5)), ms(percentile(p.p99, 0.5)))
}
