package limit

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Result is the decision about one request.
type Result struct {
	Policy  Policy
	Allowed bool
	// Remaining is how many requests would be allowed right now.
	Remaining int
	// Reset is the time until the bucket is full again.
	Reset time.Duration
	// RetryAfter is the time until one request is allowed; 0 when this one was.
	RetryAfter time.Duration
}

// almostOne counts a token that rounding left a little short as whole.
const almostOne = 1e-3

func newResult(p Policy, allowed bool, tokens float64) Result {
	r := Result{Policy: p, Allowed: allowed}
	r.Reset = duration((float64(p.Burst) - tokens) * p.interval())
	if allowed {
		r.Remaining = max(0, int(math.Floor(tokens+almostOne)))
	} else {
		// Never 0, which would mean that it was allowed.
		r.RetryAfter = max(1, duration((1-tokens)*p.interval()))
	}
	return r
}

// duration is ns nanoseconds, within what a Duration holds.
func duration(ns float64) time.Duration {
	switch {
	case ns <= 0:
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(ns)
}

// WriteHeaders adds RateLimit-Policy and RateLimit as of the IETF's
// draft-ietf-httpapi-ratelimit-headers-11, and Retry-After when the request is
// not allowed. They are added and not set, so that a response can carry the results of
// several policies; call it once for each.
//
//	RateLimit-Policy: "player";q=1000;w=4
//	RateLimit: "player";r=998;t=1
//
// q is the burst, w the seconds in which an empty bucket is full again, r what
// remains, t the seconds until the bucket is full; seconds are rounded up. When
// the request is not allowed, t is the same as Retry-After, which should not be
// earlier than t (section 6 of the draft).
func (r Result) WriteHeaders(h http.Header) {
	p := r.Policy.effective()
	name := `"` + p.Name + `"`
	h.Add("RateLimit-Policy", name+";q="+strconv.Itoa(p.Burst)+";w="+strconv.Itoa(max(1, seconds(duration(float64(p.Burst)*p.interval())))))
	t := seconds(r.Reset)
	if !r.Allowed {
		t = r.retrySeconds()
		h.Set("Retry-After", strconv.Itoa(t))
	}
	h.Add("RateLimit", name+";r="+strconv.Itoa(r.Remaining)+";t="+strconv.Itoa(t))
}

// Err is nil when the request is allowed, and otherwise a fault.RateLimited with
// the code rate_limited and the time to wait.
func (r Result) Err() error {
	if r.Allowed {
		return nil
	}
	err := fault.New(fault.RateLimited, "rate_limited", "Too many requests; wait %d s and send the same request again.", r.retrySeconds())
	err.RetryAfter = r.RetryAfter
	return err
}

func (r Result) retrySeconds() int { return max(1, seconds(r.RetryAfter)) }

// seconds rounds up.
func seconds(d time.Duration) int {
	s := int(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}
