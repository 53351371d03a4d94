package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// matchWait bounds the wait for a match.
const matchWait = 30 * time.Second

// joinMatches lets players join Nakama's matchmaker, one after another at a rate, and
// prints for each how many ns later it was told of its match. Each token is a player's.
func joinMatches(ctx context.Context, address string, tokens []string, every time.Duration) error {
	connections := make([]*websocket.Conn, len(tokens))
	for i, token := range tokens {
		c, _, err := websocket.DefaultDialer.DialContext(ctx, "ws://"+address+"/ws?"+url.Values{"token": {token}, "format": {"json"}}.Encode(), nil)
		if err != nil {
			return err
		}
		defer c.Close()
		connections[i] = c
	}
	took, failures := make([]time.Duration, len(tokens)), make([]error, len(tokens))
	var group sync.WaitGroup
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i, c := range connections {
		<-ticker.C
		group.Go(func() {
			began := time.Now()
			failures[i] = untilMatched(c)
			took[i] = time.Since(began)
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	for _, d := range took {
		fmt.Println(d.Nanoseconds())
	}
	return nil
}

// untilMatched joins and waits for the match.
func untilMatched(c *websocket.Conn) error {
	if err := c.SetReadDeadline(time.Now().Add(matchWait)); err != nil {
		return err
	}
	const join = `{"cid":"1","matchmaker_add":{"min_count":2,"max_count":2,"query":"*"}}`
	if err := c.WriteMessage(websocket.TextMessage, []byte(join)); err != nil {
		return err
	}
	for {
		var message map[string]json.RawMessage
		if err := c.ReadJSON(&message); err != nil {
			return err
		}
		if failed, ok := message["error"]; ok {
			return fmt.Errorf("nakama: %s", failed)
		}
		if _, ok := message["matchmaker_matched"]; ok {
			return nil
		}
	}
}
