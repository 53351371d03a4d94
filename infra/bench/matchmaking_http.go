package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// joinQueue lets a player join a queue over HTTP and returns the ticket's id. It is empty
// when the player's last ticket still waits.
func (c *client) joinQueue(address, mode string, p player) (ticketID string, err error) {
	body := `{"idempotency_key":"` + randomKey() + `","attributes":` + anybody + `}`
	c.out = fmt.Appendf(c.out[:0],
		"POST /v1/matchmaking/queues/%s/tickets HTTP/1.1\r\nHost: %s\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		mode, address, p.bearer, len(body), body)
	if err := c.conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return "", err
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return "", err
	}
	status, length, err := c.readHead()
	if err != nil {
		return "", err
	}
	answer := make([]byte, max(length, 0))
	if _, err := io.ReadFull(c.in, answer); err != nil {
		return "", err
	}
	var got struct {
		TicketID string `json:"ticket_id"`
		Code     string `json:"code"`
	}
	err = json.Unmarshal(answer, &got)
	if err == nil && status == "409" && got.Code == "ticket_queued" {
		return "", nil
	}
	if err != nil || status != "201" || got.TicketID == "" {
		return "", fmt.Errorf("status %s: %.500s", status, answer)
	}
	return got.TicketID, nil
}
