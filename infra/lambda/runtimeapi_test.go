package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
)

// runtimeServer is Lambda's Runtime API for one process, as documented ("Using the Lambda
// runtime API for custom runtimes", version 2018-06-01), and as much of the Extensions
// API as makes Lambda send SIGTERM.
type runtimeServer struct {
	t          testing.TB
	address    string
	next       chan *invocation
	registered chan string // extensions by name
	initError  chan initError
	gone       chan struct{}

	mutex   sync.Mutex
	pending map[string]*invocation
	count   int
}

type initError struct {
	kind string // by the header
	body []byte
}

// invocation is one event and its answer.
type invocation struct {
	id       string
	event    []byte
	deadline time.Time
	answered chan *result
}

// result is what the process posted for an invocation.
type result struct {
	failed      bool // to /error
	contentType string
	body        io.Reader
	trailer     http.Header // complete after the body
	done        chan struct{}
	at          time.Time
}

const answerWithin = 30 * time.Second

func startRuntime(t testing.TB) *runtimeServer {
	t.Helper()
	s := &runtimeServer{
		t: t, next: make(chan *invocation), registered: make(chan string, 1), initError: make(chan initError, 1),
		gone: make(chan struct{}), pending: map[string]*invocation{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", s.serveNext)
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/response", func(w http.ResponseWriter, r *http.Request) { s.serveResult(w, r, false) })
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/{id}/error", func(w http.ResponseWriter, r *http.Request) { s.serveResult(w, r, true) })
	mux.HandleFunc("POST /2018-06-01/runtime/init/error", s.serveInitError)
	mux.HandleFunc("POST /2020-01-01/extension/register", func(w http.ResponseWriter, r *http.Request) {
		s.registered <- r.Header.Get("Lambda-Extension-Name")
		w.Header().Set("Lambda-Extension-Identifier", "an-id")
		_, _ = io.WriteString(w, "{}")
	})
	mux.HandleFunc("GET /2020-01-01/extension/event/next", func(_ http.ResponseWriter, r *http.Request) { s.hang(r) })
	listener := kit.Listen(t)
	s.address = listener.Addr().String()
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		close(s.gone)
		_ = server.Close()
	})
	return s
}

// hang answers when the process or the test is gone.
func (s *runtimeServer) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.gone:
	}
}

func (s *runtimeServer) serveNext(w http.ResponseWriter, r *http.Request) {
	select {
	case i := <-s.next:
		h := w.Header()
		h.Set("Content-Type", "application/json")
		h.Set("Lambda-Runtime-Aws-Request-Id", i.id)
		h.Set("Lambda-Runtime-Deadline-Ms", strconv.FormatInt(i.deadline.UnixMilli(), 10))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:eu-central-1:123456789012:function:miniserver")
		h.Set("Lambda-Runtime-Trace-Id", "Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=1")
		_, _ = w.Write(i.event)
	case <-r.Context().Done():
	case <-s.gone:
	}
}

// serveResult passes the body on as it comes: that is response streaming.
func (s *runtimeServer) serveResult(w http.ResponseWriter, r *http.Request, failed bool) {
	s.mutex.Lock()
	i := s.pending[r.PathValue("id")]
	delete(s.pending, r.PathValue("id"))
	s.mutex.Unlock()
	if i == nil {
		s.t.Errorf("an answer to %q, which was not sent or was answered already", r.PathValue("id"))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	reader, writer := io.Pipe()
	answer := &result{failed: failed, contentType: r.Header.Get("Content-Type"), body: reader, done: make(chan struct{}), at: time.Now()}
	i.answered <- answer
	_, err := io.Copy(writer, r.Body)
	answer.trailer = r.Trailer
	close(answer.done)
	_ = writer.CloseWithError(err)
	w.WriteHeader(http.StatusAccepted)
}

func (s *runtimeServer) serveInitError(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.initError <- initError{r.Header.Get("Lambda-Runtime-Function-Error-Type"), body}
	w.WriteHeader(http.StatusAccepted)
}

// begin hands an event to the process, which must be waiting for one.
func (s *runtimeServer) begin(event any, timeout time.Duration) *invocation {
	s.t.Helper()
	payload, ok := event.([]byte)
	if !ok {
		var err error
		payload, err = json.Marshal(event)
		kit.Must(s.t, err)
	}
	s.mutex.Lock()
	s.count++
	i := &invocation{id: strconv.Itoa(s.count), event: payload, deadline: time.Now().Add(timeout), answered: make(chan *result, 1)}
	s.pending[i.id] = i
	s.mutex.Unlock()
	select {
	case s.next <- i:
	case <-time.After(answerWithin):
		s.t.Fatal("the process does not ask for an event")
	}
	return i
}

// wait returns the answer once it began.
func (s *runtimeServer) wait(i *invocation) *result {
	s.t.Helper()
	select {
	case answer := <-i.answered:
		return answer
	case <-time.After(answerWithin):
		s.t.Fatal("no answer")
		return nil
	}
}

// invoke is an event and its whole answer.
func (s *runtimeServer) invoke(event any, timeout time.Duration) (*result, []byte) {
	s.t.Helper()
	answer := s.wait(s.begin(event, timeout))
	body, err := io.ReadAll(answer.body)
	kit.Must(s.t, err)
	return answer, body
}

// httpAnswer is what a client of a function URL or an HTTP API gets.
type httpAnswer struct {
	StatusCode      int               `json:"statusCode"`
	Headers         map[string]string `json:"headers"`
	Cookies         []string          `json:"cookies"`
	Body            string            `json:"body"`
	IsBase64Encoded bool              `json:"isBase64Encoded"`
}

func (a httpAnswer) json(t testing.TB) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(a.Body), &v); err != nil {
		t.Fatalf("status %d, not JSON: %q", a.StatusCode, a.Body)
	}
	return v
}

// preludeEnd is between the status and headers of a streamed answer and its body.
var preludeEnd = strings.Repeat("\x00", 8)

// readPrelude takes a streamed answer apart; what is left in the reader is the body.
func readPrelude(t testing.TB, answer *result) (httpAnswer, *bufio.Reader) {
	t.Helper()
	if answer.failed || answer.contentType != "application/vnd.awslambda.http-integration-response" {
		body, _ := io.ReadAll(answer.body)
		t.Fatalf("no streamed answer: failed=%v %s %s", answer.failed, answer.contentType, body)
	}
	reader := bufio.NewReader(answer.body)
	var prelude strings.Builder
	for !strings.HasSuffix(prelude.String(), preludeEnd) {
		b, err := reader.ReadByte()
		if err != nil {
			t.Fatalf("the prelude broke off: %v %q", err, prelude.String())
		}
		prelude.WriteByte(b)
	}
	var a httpAnswer
	kit.Must(t, json.Unmarshal([]byte(strings.TrimSuffix(prelude.String(), preludeEnd)), &a))
	return a, reader
}

// url sends an event of a function URL and returns its whole answer.
func (s *runtimeServer) url(event any) httpAnswer {
	s.t.Helper()
	answer := s.wait(s.begin(event, time.Minute))
	a, rest := readPrelude(s.t, answer)
	body, err := io.ReadAll(rest)
	kit.Must(s.t, err)
	a.Body = string(body)
	return a
}

// api sends an event of an HTTP API and returns its answer.
func (s *runtimeServer) api(event any) httpAnswer {
	s.t.Helper()
	return s.apiAnswer(s.begin(event, time.Minute))
}

func (s *runtimeServer) apiAnswer(i *invocation) httpAnswer {
	s.t.Helper()
	answer := s.wait(i)
	body, err := io.ReadAll(answer.body)
	kit.Must(s.t, err)
	var a httpAnswer
	if answer.failed || json.Unmarshal(body, &a) != nil {
		s.t.Fatalf("no answer: failed=%v %s %s", answer.failed, answer.contentType, body)
	}
	return a
}
