package webhook

import (
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

const (
	maxIdlePerHost = 16
	idleTimeout    = 90 * time.Second
	// pingAfter detects a receiver's machine that vanished; without it, notifications would
	// time out on its HTTP/2 connection until TCP gives up, and become FAILED.
	pingAfter = 5 * time.Second
)

// guard refuses addresses outside the public internet, because a receiver's name may
// resolve into the operator's own network (server-side request forgery). Its list comes
// from IANA's special-purpose registries; receivers may choose their port.
var guard = ssrf.New(ssrf.WithAnyPort())

// newTransport uses no proxy, so that the checked address is the called one. The check
// runs at the dial, after the name was resolved: a name may resolve differently a moment
// later.
func newTransport(allowPrivate bool, timeout time.Duration) http.RoundTripper {
	dialer := &net.Dialer{Timeout: timeout}
	if !allowPrivate {
		dialer.Control = func(network, address string, c syscall.RawConn) error {
			if err := guard.Safe(network, address, c); err != nil {
				return fmt.Errorf("%w; set WEBHOOK_ALLOW_PRIVATE=true if it is meant", err)
			}
			return nil
		}
	}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: timeout},
		MaxIdleConnsPerHost:   maxIdlePerHost,
		IdleConnTimeout:       idleTimeout,
		TLSHandshakeTimeout:   timeout,
		ResponseHeaderTimeout: timeout,
	}
}
