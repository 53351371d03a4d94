package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/uuid"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/miniserversystem/miniserver/pkg/idempotency"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// opsTimeout bounds one call of the API.
const opsTimeout = 30 * time.Second

// operator is the caller of the API of operations.
type operator struct {
	url    string
	client *http.Client
	out    io.Writer
	json   bool
}

// newOperator signs in.
func newOperator(ctx context.Context, out io.Writer, asJSON bool) (*operator, error) {
	o := &operator{url: strings.TrimRight(cmp.Or(os.Getenv("GATEWAY_URL"), "http://127.0.0.1:8080"), "/"), out: out, json: asJSON}
	if token := os.Getenv("OPS_TOKEN"); token != "" {
		o.client = oauth2.NewClient(ctx, oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token}))
	} else {
		issuer, id, secret := os.Getenv("OIDC_ISSUER"), os.Getenv("OPS_CLIENT_ID"), os.Getenv("OPS_CLIENT_SECRET")
		if issuer == "" || id == "" || secret == "" {
			return nil, errors.New("set OPS_TOKEN, or OIDC_ISSUER, OPS_CLIENT_ID and OPS_CLIENT_SECRET")
		}
		asking, cancel := context.WithTimeout(ctx, opsTimeout)
		defer cancel()
		provider, err := oidc.NewProvider(asking, issuer)
		if err != nil {
			return nil, fmt.Errorf("the issuer does not answer: %w", err)
		}
		config := clientcredentials.Config{ClientID: id, ClientSecret: secret, TokenURL: provider.Endpoint().TokenURL}
		o.client = config.Client(ctx)
	}
	o.client.Timeout = opsTimeout
	return o, nil
}

// call sends a request and decodes the answer into answer, if that is not nil. A problem is
// the error.
func (o *operator) call(ctx context.Context, method, path string, body, answer any) ([]byte, error) {
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, o.url+path, content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set(idempotency.Header, uuid.NewString())
	}
	response, err := o.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= http.StatusBadRequest {
		if p, ok := problem.Parse(text); ok {
			return nil, p
		}
		return nil, fmt.Errorf("%s was answered %s", path, response.Status)
	}
	if answer != nil {
		err = json.Unmarshal(text, answer)
	}
	return text, err
}

// print writes JSON with indentation.
func (o *operator) print(text []byte) error {
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(text), "", "  "); err != nil {
		return err
	}
	// JSON may hold characters that steer a terminal; it escapes only those below space.
	shown := strings.Map(func(r rune) rune {
		if r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '\ufffd'
		}
		return r
	}, out.String())
	_, err := fmt.Fprintln(o.out, shown)
	return err
}

// table prints rows below each other, or the answer as it is with -json.
func (o *operator) table(answer []byte, head string, rows [][]string) error {
	if o.json {
		return o.print(answer)
	}
	out := tabwriter.NewWriter(o.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, head)
	for _, row := range rows {
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
	return out.Flush()
}

// line is text as one line that a terminal shows as it is: what is stuck was written by
// others.
func line(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > 100 {
		return string(runes[:100]) + "…"
	}
	return text
}
