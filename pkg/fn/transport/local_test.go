package transport_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fn/transport"
)

func get(t testing.TB, l transport.Local, ctx context.Context) (*http.Response, error) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://f/path?a=1", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	return l.RoundTrip(request)
}

// A call within the process looks like one over the network.
func TestLocalAnswers(t *testing.T) {
	t.Parallel()
	l := transport.Local{"f": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != "body" || r.RequestURI != "/path?a=1" || r.Method != http.MethodPost {
			t.Errorf("the handler got %s %s %q, %v; want POST /path?a=1 with the body", r.Method, r.RequestURI, body, err)
		}
		w.Header().Set("A", "sent")
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)    // too late
		w.Header().Set("B", "not sent") // too late
		_, _ = w.Write([]byte("answer"))
	})}
	response, err := get(t, l, context.Background())
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || string(body) != "answer" || response.StatusCode != http.StatusTeapot || response.Header.Get("A") != "sent" ||
		response.Header.Get("B") != "" || response.ContentLength != 6 {
		t.Errorf("the response is %+v with %q, %v; want 418, the header A and the answer", response, body, err)
	}
	if !strings.HasPrefix(response.Status, "418") { // code and text, as in net/http
		t.Errorf("Status is %q, want 418 and its text", response.Status)
	}
	if _, err := (transport.Local{}).RoundTrip(response.Request); err == nil {
		t.Error("a function that does not exist answered")
	}
}

// A handler that hangs up on purpose fails its call and nothing else.
func TestLocalAborts(t *testing.T) {
	t.Parallel()
	l := transport.Local{"f": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("half"))
		panic(http.ErrAbortHandler)
	})}
	response, err := get(t, l, context.Background())
	if err == nil && (response.StatusCode < 500 || response.ContentLength > 0) {
		t.Errorf("an aborted call was answered %d with %d bytes, want an error", response.StatusCode, response.ContentLength)
	}
}

// The caller's deadline counts, even when the handler does not look at it.
func TestLocalDeadline(t *testing.T) {
	t.Parallel()
	let := make(chan struct{})
	defer close(let)
	l := transport.Local{"f": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-let })}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := get(t, l, ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the call ended with %v, want DeadlineExceeded", err)
	}
}

// Flushed data arrives before the handler ends, and a stream that breaks off ends with an
// error.
func TestLocalStreams(t *testing.T) {
	t.Parallel()
	for name, abort := range map[string]bool{"ends": false, "breaks off": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			l := transport.Local{"f": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write([]byte("one"))
				w.(http.Flusher).Flush()
				<-next
				_, _ = w.Write([]byte("two"))
				if abort {
					panic(http.ErrAbortHandler)
				}
			})}
			response, err := get(t, l, context.Background())
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			first := make([]byte, 3)
			if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "one" {
				t.Fatalf("read %q, %v before the handler ended, want one", first, err)
			}
			close(next)
			rest, err := io.ReadAll(response.Body)
			if string(rest) != "two" || (err != nil) != abort {
				t.Errorf("read %q, %v, want two; an error: %v", rest, err, abort)
			}
		})
	}
}

// A template must be a URL with the function in its host.
func TestRemoteTemplate(t *testing.T) {
	t.Parallel()
	for template, ok := range map[string]bool{
		"http://{function}.default.svc.cluster.local": true, "http://{function}:8080": true,
		"": false, "{function}": false, "http://": false, "http://x/{function}": false, "://x": false,
	} {
		if _, err := transport.Remote(template); (err == nil) != ok {
			t.Errorf("%q: %v, want accepted %v", template, err, ok)
		}
	}
}

// BenchmarkLocal measures a call whose handler does what most do: verify a signature,
// decode and encode JSON. Compare user CPU, not wall time.
func BenchmarkLocal(b *testing.B) {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	text := []byte(`{"a":{"b":{"c":[1,2,3,{"d":{"e":{"f":[1,2,{"g":1}]}}}]}}}`)
	signature := ed25519.Sign(private, text)
	l := transport.Local{"f": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var v any
		if err := json.Unmarshal(text, &v); err != nil || !ed25519.Verify(public, text, signature) {
			b.Errorf("the handler reads %v, %v", v, err)
		}
		_ = json.NewEncoder(w).Encode(v)
	})}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			response, err := get(b, l, context.Background())
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	})
}
