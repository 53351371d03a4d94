package session_test

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/miniserversystem/miniserver/pkg/session"
	"github.com/miniserversystem/miniserver/test/kit"
)

// A browser keeps a cookie that opens its session, and nothing else. The issuer signs the
// person out everywhere: the cookie opens nothing any more.
func ExampleStore() {
	t := kit.ForExample()
	defer t.End()
	ctx := t.Context()
	options, err := redis.ParseURL(kit.Redis(t).URL())
	kit.Must(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	store := session.NewStore(client, limits)

	cookie, err := store.Create(ctx, session.Session{UserID: "u_1", Issuer: "https://login.example.com", Subject: "ann", SID: "at-the-issuer"})
	kit.Must(t, err)
	known, err := store.Load(ctx, cookie)
	fmt.Println(known.UserID, err)

	ended, err := store.EndSID(ctx, "https://login.example.com", "at-the-issuer")
	fmt.Println(ended, "ended,", err)
	_, err = store.Load(ctx, cookie)
	fmt.Println(errors.Is(err, session.ErrNone))
	// Output:
	// u_1 <nil>
	// 1 ended, <nil>
	// true
}
