package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// client is one keep-alive HTTP/1.1 connection that can do just what is needed here. The
// client of net/http would take CPU from what is measured.
type client struct {
	conn net.Conn
	in   *bufio.Reader
	head []byte // of a grant, up to the value of its Idempotency-Key
	out  []byte
}

const (
	requestTimeout = 30 * time.Second
	maxAnswer      = 16 << 10 // bytes of a body; nothing longer is asked for here
)

func dial(ctx context.Context, address, token string) (*client, error) {
	conn, err := (&net.Dialer{Timeout: requestTimeout}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	head := "POST /v1/entitlements/grants HTTP/1.1\r\nHost: " + address + "\r\nAuthorization: Bearer " + token +
		"\r\nContent-Type: application/json\r\nIdempotency-Key: "
	return &client{conn: conn, in: bufio.NewReaderSize(conn, maxAnswer), head: []byte(head)}, nil
}

func (c *client) close() { _ = c.conn.Close() }

// grant gives user the item under key, and fails unless the answer is 200.
func (c *client) grant(user, key string) error {
	const start, middle, end = `{"user_id":"`, `","stock_keeping_unit":"item1","reason":"purchase","purchase_id":"`, `"}`
	c.out = append(append(c.out[:0], c.head...), key...)
	c.out = append(c.out, "\r\nContent-Length: "...)
	c.out = strconv.AppendInt(c.out, int64(len(start)+len(user)+len(middle)+len(key)+len(end)), 10)
	c.out = append(append(append(c.out, "\r\n\r\n"+start...), user...), middle...)
	c.out = append(append(c.out, key...), end...)
	return c.send(c.out)
}

// post sends a body with more header lines, each with its end, and returns the body of
// the answer, which must have this status. An empty body is not sent.
func (c *client) post(path, headers, body string, status int) ([]byte, error) {
	c.out = fmt.Appendf(c.out[:0], "POST %s HTTP/1.1\r\nHost: bench\r\n%sContent-Length: %d\r\n\r\n%s", path, headers, len(body), body)
	return c.answered(c.out, strconv.Itoa(status))
}

func (c *client) send(request []byte) error {
	_, err := c.fetch(request)
	return err
}

// fetch sends one request and returns the body of its answer, which is valid until the
// next one. It fails unless the status is 200.
func (c *client) fetch(request []byte) ([]byte, error) { return c.answered(request, "200") }

func (c *client) answered(request []byte, want string) ([]byte, error) {
	if err := c.conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(request); err != nil {
		return nil, err
	}
	status, length, err := c.readHead()
	if err != nil {
		return nil, err
	}
	if length < 0 {
		return nil, fmt.Errorf("an answer without Content-Length, status %s", status)
	}
	body, err := c.in.Peek(length)
	if err != nil {
		return nil, err
	}
	if status != want {
		err := &unexpected{status, fmt.Sprintf("%.500s", body)}
		_, discarded := c.in.Discard(length)
		return nil, errors.Join(err, discarded)
	}
	_, err = c.in.Discard(length) // Peek's bytes stay until the next read
	return body, err
}

// unexpected is an answer that is not the one that was wanted. The connection can be used
// again.
type unexpected struct{ status, body string }

func (u *unexpected) Error() string { return "status " + u.status + ": " + u.body }

// readHead reads an answer's status line and headers; length is -1 when they have none.
func (c *client) readHead() (status string, length int, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return "", 0, err
	}
	if len(line) < len("HTTP/1.1 200") {
		return "", 0, fmt.Errorf("no status line: %q", line)
	}
	status, length = string(line[9:12]), -1
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return "", 0, err
		}
		if len(line) <= len("\r\n") {
			return status, length, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("content-length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return "", 0, err
			}
		}
	}
}

const users = 1_000_000

func randomUser() string { return strconv.Itoa(1 + rand.IntN(users)) }

// randomKey has 18 digits, as pgbench's have.
func randomKey() string { return strconv.FormatInt(1e17+rand.Int64N(9e17), 10) }

// grants lets clients make new grants through the gateway at address.
func (b *bench) grants(ctx context.Context, address string, clients int, window time.Duration) (float64, error) {
	return load(ctx, clients, window, granter(address, b.token))
}

// granter opens clients that make new grants.
func granter(address, token string) func(context.Context) (func() error, func(), error) {
	return func(ctx context.Context) (func() error, func(), error) {
		c, err := dial(ctx, address, token)
		if err != nil {
			return nil, nil, err
		}
		return func() error { return c.grant(randomUser(), randomKey()) }, c.close, nil
	}
}
