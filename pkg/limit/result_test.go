package limit_test

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/limit"
)

func TestHeaders(t *testing.T) {
	t.Parallel()
	player := limit.Policy{Name: "player", Rate: 250, Burst: 1000}
	daily := limit.Policy{Name: "daily", Rate: 3, Period: 24 * time.Hour, Burst: 3}
	for _, c := range []struct {
		r                          limit.Result
		policy, rateLimit, waiting string
	}{
		{limit.Result{Policy: player, Allowed: true, Remaining: 998, Reset: 8 * time.Millisecond}, `"player";q=1000;w=4`, `"player";r=998;t=1`, ""},
		{limit.Result{Policy: player, Allowed: true, Remaining: 1000}, `"player";q=1000;w=4`, `"player";r=1000;t=0`, ""},
		{limit.Result{Policy: player, Allowed: true, Reset: 4 * time.Second}, `"player";q=1000;w=4`, `"player";r=0;t=4`, ""},
		{limit.Result{Policy: player, Reset: 4 * time.Second, RetryAfter: 3 * time.Millisecond}, `"player";q=1000;w=4`, `"player";r=0;t=1`, "1"},
		{limit.Result{Policy: player, Reset: 4 * time.Second, RetryAfter: 1}, `"player";q=1000;w=4`, `"player";r=0;t=1`, "1"},
		{limit.Result{Policy: player}, `"player";q=1000;w=4`, `"player";r=0;t=1`, "1"},
		{limit.Result{Policy: daily, Reset: 72 * time.Hour, RetryAfter: 24*time.Hour - time.Millisecond}, `"daily";q=3;w=86400`, `"daily";r=0;t=86400`, "86400"},
		{limit.Result{Policy: daily, RetryAfter: 2*time.Second + 1}, `"daily";q=3;w=86400`, `"daily";r=0;t=3`, "3"},
		{limit.Result{Policy: limit.Policy{Name: "third", Rate: 3, Burst: 10}, Allowed: true, Remaining: 9, Reset: time.Second / 3}, `"third";q=10;w=4`, `"third";r=9;t=1`, ""},
		{limit.Result{Policy: limit.Policy{Name: "fast", Rate: 1000, Burst: 1}, Allowed: true}, `"fast";q=1;w=1`, `"fast";r=0;t=0`, ""},
		{limit.Result{Policy: limit.Policy{Name: "short", Rate: 5, Period: 100 * time.Millisecond, Burst: 150}, Allowed: true}, `"short";q=150;w=3`, `"short";r=0;t=0`, ""},
		{limit.Result{Policy: limit.Policy{Name: "zero"}, Allowed: true}, `"zero";q=1;w=1`, `"zero";r=0;t=0`, ""},
	} {
		h := http.Header{}
		c.r.WriteHeaders(h)
		if h.Get("RateLimit-Policy") != c.policy || h.Get("RateLimit") != c.rateLimit || h.Get("Retry-After") != c.waiting {
			t.Errorf("%+v: %v, want %s, %s and %q", c.r, h, c.policy, c.rateLimit, c.waiting)
		}
		if _, waits := h["Retry-After"]; waits != !c.r.Allowed || len(h) > 3 {
			t.Errorf("%+v: the headers are %q; want Retry-After only if refused", c.r, slices.Collect(maps.Keys(h)))
		}
	}
}

// Two policies stand side by side in the fields, which are lists.
func TestHeadersOfTwoPolicies(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	limit.Result{Policy: limit.Policy{Name: "address", Rate: 10, Burst: 20}, Allowed: true, Remaining: 19, Reset: 1}.WriteHeaders(h)
	limit.Result{Policy: limit.Policy{Name: "player", Rate: 1, Burst: 5}, Reset: 5 * time.Second, RetryAfter: time.Second}.WriteHeaders(h)
	if got := h.Values("RateLimit-Policy"); !slices.Equal(got, []string{`"address";q=20;w=2`, `"player";q=5;w=5`}) {
		t.Errorf("RateLimit-Policy is %q, want both policies", got)
	}
	if got := h.Values("RateLimit"); !slices.Equal(got, []string{`"address";r=19;t=1`, `"player";r=0;t=1`}) {
		t.Errorf("RateLimit is %q, want both policies", got)
	}
	if got := h.Values("Retry-After"); !slices.Equal(got, []string{"1"}) {
		t.Errorf("Retry-After is %q, want 1", got)
	}
}

func TestErr(t *testing.T) {
	t.Parallel()
	if err := (limit.Result{Allowed: true}).Err(); err != nil {
		t.Errorf("an allowed result has the error %v", err)
	}
	err := limit.Result{RetryAfter: 1200 * time.Millisecond}.Err()
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.RateLimited || f.Code != "rate_limited" || f.RetryAfter != 1200*time.Millisecond ||
		f.Detail != "Too many requests; wait 2 s and send the same request again." {
		t.Errorf("%#v", err)
	}
	for _, l := range limiters(t) {
		l.Allow(t.Context(), hourly, "k")
		for l.Allow(t.Context(), hourly, "k").Allowed {
		}
		if err := l.Allow(t.Context(), hourly, "k").Err(); !errors.As(err, &f) || f.RetryAfter < 59*time.Minute || f.RetryAfter > time.Hour+time.Millisecond {
			t.Errorf("%#v", err)
		}
	}
}
