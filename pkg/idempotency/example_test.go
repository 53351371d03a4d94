package idempotency_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.Main(m)) }

// A handler that adds coins once for each key, however often the request comes: the key,
// the answer and the change are one transaction.
func Example() {
	t := kit.ForExample()
	defer t.End()
	pool := kit.Pool(t)
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE purse (coins int); INSERT INTO purse VALUES (0);
		CREATE TABLE answers (key text PRIMARY KEY, request_hash bytea NOT NULL, body text NOT NULL)`)
	kit.Must(t, err)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := addCoins(r.Context(), pool, r)
		if err != nil {
			body = err.Error()
		}
		fmt.Fprint(w, body)
	})

	post := func(key, body string) {
		r := httptest.NewRequest(http.MethodPost, "/coins", strings.NewReader(body))
		r.Header.Set(idempotency.Header, key)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Body)
	}
	post("p_456", `{"coins": 10}`)
	post("p_456", `{"coins":10}`) // a retry: the first answer was lost
	post("p_456", `{"coins": 99}`)
	post("p_457", `{"coins": 10}`)
	// Output:
	// you have 10
	// you have 10
	// idempotency_key_reused: This Idempotency-Key was used for another request; send this one with a new key.
	// you have 20
}

func addCoins(ctx context.Context, pool *pgxpool.Pool, r *http.Request) (answer string, err error) {
	key, err := idempotency.ParseKey(r.Header.Values(idempotency.Header))
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return "", err
	}
	hash, err := idempotency.Fingerprint("add-coins", "", body)
	if err != nil {
		return "", err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		// The first request to insert the key continues; others wait here for its answer.
		tag, err := tx.Exec(ctx, `INSERT INTO answers VALUES ($1, $2, '') ON CONFLICT DO NOTHING`, key, hash)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			var earlier []byte
			if err := tx.QueryRow(ctx, `SELECT request_hash, body FROM answers WHERE key = $1`, key).Scan(&earlier, &answer); err != nil {
				return err
			}
			if !bytes.Equal(earlier, hash) {
				return idempotency.ErrReused
			}
			return nil
		}
		return tx.QueryRow(ctx, `
			WITH added AS (UPDATE purse SET coins = coins + ($2::jsonb->>'coins')::int RETURNING coins)
			UPDATE answers SET body = 'you have ' || added.coins FROM added WHERE key = $1 RETURNING body`, key, string(body)).Scan(&answer)
	})
	return answer, err
}

// A key may come bare or as a quoted structured-field string: it is the same key.
func ExampleParseKey() {
	bare, _ := idempotency.ParseKey([]string{"p_456"})
	quoted, _ := idempotency.ParseKey([]string{`"p_456"`})
	fmt.Println(bare == quoted)

	_, err := idempotency.ParseKey([]string{"p_456", "p_457"})
	fmt.Println(err)
	// Output:
	// true
	// idempotency_key_invalid: The Idempotency-Key cannot be used: there are several; send one.
}

// A retry may write the same JSON in another way; other content is another request.
func ExampleFingerprint() {
	first, _ := idempotency.Fingerprint("grant", "", []byte(`{"user_id":"u_1","purchase_id":"p_456"}`))
	retry, _ := idempotency.Fingerprint("grant", "", []byte(`{ "purchase_id": "p_456", "user_id": "\u0075_1" }`))
	other, _ := idempotency.Fingerprint("grant", "", []byte(`{"user_id":"u_2","purchase_id":"p_456"}`))
	fmt.Println(bytes.Equal(first, retry), bytes.Equal(first, other))
	// Output: true false
}
