package limit_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/miniserversystem/miniserver/pkg/limit"
)

// A player who sends too many requests gets these headers.
func ExampleResult_WriteHeaders() {
	result := limit.Result{
		Policy:     limit.Policy{Name: "player", Rate: 1, Burst: 4},
		Reset:      4*time.Second - 800*time.Millisecond,
		RetryAfter: 200 * time.Millisecond,
	}
	h := http.Header{}
	result.WriteHeaders(h)
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		fmt.Printf("%s: %s\n", name, h.Get(name))
	}
	fmt.Println(result.Err())
	// Output:
	// RateLimit-Policy: "player";q=4;w=4
	// RateLimit: "player";r=0;t=1
	// Retry-After: 1
	// rate_limited: Too many requests; wait 1 s and send the same request again.
}
