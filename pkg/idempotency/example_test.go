package idempotency_test

import (
	"bytes"
	"fmt"

	"github.com/miniserversystem/miniserver/pkg/idempotency"
)

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

// A retry may write the same JSON in another way; another content is another
// request.
func ExampleFingerprint() {
	first, _ := idempotency.Fingerprint("grant", "", []byte(`{"user_id":"u_1","purchase_id":"p_456"}`))
	retry, _ := idempotency.Fingerprint("grant", "", []byte(`{ "purchase_id": "p_456", "user_id": "\u0075_1" }`))
	other, _ := idempotency.Fingerprint("grant", "", []byte(`{"user_id":"u_2","purchase_id":"p_456"}`))
	fmt.Println(bytes.Equal(first, retry), bytes.Equal(first, other))
	// Output: true false
}
