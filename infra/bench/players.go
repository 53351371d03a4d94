package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/account"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/session"
)

const (
	// playerCount is so high that no player who asks comes near a limit.
	playerCount = 200
	playerOwns  = 3 // items
	webClient   = "miniserver-web"
)

// player is a user who signed in, with a bearer token and in a browser.
type player struct {
	userID string
	bearer string // the header that says who it is, with its line end
	cookie string // the other one
}

// playerSubject names a player at the issuer.
func playerSubject(n int) string { return fmt.Sprintf("bench-player-%03d", n) }

// players registers count players in s, which trusts issuer, signs them in and gives
// them something.
func (b *bench) players(ctx context.Context, s *system, issuer *tokenIssuer, count int) ([]player, error) {
	options, err := redis.ParseURL(s.redis.URL())
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	defer client.Close()
	sessions := session.NewStore(client, session.Limits{Idle: 12 * time.Hour, Absolute: 168 * time.Hour}) // the system's defaults
	accounts := account.NewStore(s.pool)
	roles := []string{auth.RolePlayer}
	players := make([]player, count)
	for i := range players {
		subject := playerSubject(i)
		known, err := accounts.Register(ctx, issuer.url, subject, roles)
		if err != nil {
			return nil, err
		}
		token, err := issuer.token(subject, webClient, roles...)
		if err != nil {
			return nil, err
		}
		cookie, err := sessions.Create(ctx, session.Session{
			UserID: known.UserID, Issuer: issuer.url, Subject: subject, Client: webClient, SID: subject, Roles: roles, AuthTime: time.Now(),
			// Real tokens fill a session; these are never used, since it is not due.
			IDToken: token, RefreshToken: token, RenewAt: time.Now().Add(tokenLifetime),
		})
		if err != nil {
			return nil, err
		}
		if _, err := s.pool.Exec(ctx, `INSERT INTO entitlement.entitlements (user_id, stock_keeping_unit, status, version, updated_at)
			SELECT $1, 'item' || n, 'ACTIVE', 1, now() FROM generate_series(1, $2::int) n`, known.UserID, playerOwns); err != nil {
			return nil, err
		}
		players[i] = player{known.UserID, "Authorization: Bearer " + token + "\r\n", "Cookie: miniserver_session=" + cookie + "\r\n"}
	}
	return players, nil
}
