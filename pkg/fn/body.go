package fn

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/problem"
)

// MaxBodyBytes is the largest request body.
const MaxBodyBytes = 64 << 10

// bodyTimeout is how long a client may take to send its body.
const bodyTimeout = 5 * time.Second

// BufferBody reads the body of r and gives it back to r, as bytes that can no
// longer fail. Its errors say what was wrong with it: too large, too slow, or broken
// off.
func BufferBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == http.NoBody {
		return nil, nil
	}
	connection := http.NewResponseController(w)
	// Inside the process there is no connection to set a deadline on; the body has
	// been read there already.
	_ = connection.SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, fault.New(fault.TooLarge, "body_too_large", "The body is larger than 64 KiB.")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, problem.New(http.StatusRequestTimeout, "body_timeout", "The body did not arrive within 5 s; send it again.")
	case err != nil:
		return nil, malformed(errors.New("the body broke off"))
	}
	_ = connection.SetReadDeadline(time.Time{})
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.TransferEncoding = nil
	return body, nil
}
