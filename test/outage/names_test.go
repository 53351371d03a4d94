package outage_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// names are what this process' lookups find, where the file of hosts has no answer.
var names = directory{addresses: map[string]netip.Addr{}}

// directory answers lookups as a DNS server does.
type directory struct {
	mutex     sync.Mutex
	addresses map[string]netip.Addr
}

func (d *directory) set(name, address string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.addresses[name+"."] = netip.MustParseAddr(address)
}

// dial is a net.Resolver's.
func (d *directory) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		_ = d.answer(far)
	}()
	return near, nil
}

// answer reads a question as it is sent over TCP, behind its length, and answers it.
func (d *directory) answer(conn net.Conn) error {
	var length [2]byte
	if _, err := io.ReadFull(conn, length[:]); err != nil {
		return err
	}
	text := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(conn, text); err != nil {
		return err
	}
	var m dnsmessage.Message
	if err := m.Unpack(text); err != nil {
		return err
	}
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	d.mutex.Lock()
	address, found := d.addresses[strings.ToLower(m.Questions[0].Name.String())]
	d.mutex.Unlock()
	switch {
	case !found:
		m.RCode = dnsmessage.RCodeNameError
	case m.Questions[0].Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET},
			Body:   &dnsmessage.AResource{A: address.As4()},
		}}
	}
	packed, err := m.Pack()
	if err != nil {
		return err
	}
	_, err = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(packed))), packed...))
	return err
}

// The stores' machine has gone, and its name still leads there: requests are answered 503.
// Then the name leads to another machine: requests succeed without a restart, once each.
func TestNameOfAMachineThatHasGone(t *testing.T) {
	t.Parallel()
	const before, after = "127.0.0.1", "127.0.0.2"
	for how, goes := range map[string]func(*kit.Link){"refuses": (*kit.Link).Cut, "silent": (*kit.Link).Hang} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			name := how + ".machine.test"
			names.set(name, before)
			var gone []*kit.Link
			// named is the setting of a store by its machine's name.
			named := func(setting, address string) string {
				link, through := kit.Through(t, address)
				gone = append(gone, link)
				u, err := url.Parse(through)
				kit.Must(t, err)
				kit.ThroughAt(t, address, net.JoinHostPort(after, u.Port()))
				u.Host = net.JoinHostPort(name, u.Port())
				return setting + "=" + u.String()
			}
			database := kit.Database(t)
			s, people := system.StartWithPeople(t, named("DATABASE_URL", database), named("REDIS_URL", kit.Redis(t).URL()), named("NATS_URL", kit.NATS(t).URL()))
			s.Pool = kit.Connect(t, database)
			// succeeds reports whether a request does; one that does not is to be answered 503 or 504.
			succeeds := func(a system.Answer) bool {
				switch {
				case a.Status == http.StatusServiceUnavailable && a.Header.Get("Retry-After") != "", a.Status == http.StatusGatewayTimeout:
					return false
				case a.Status >= http.StatusMultipleChoices:
					t.Fatalf("answered %d %s, want success, 504, or 503 with Retry-After", a.Status, a.Body)
				}
				return true
			}
			granted := func(key string) bool { return succeeds(s.Grant(key, "u_1", "item1")) }
			joined := func(key string) bool { return succeeds(s.JoinWith(people.Player(t, key), "casual", key, "{}")) }
			works := func(key string) {
				kit.Eventually(t, key+" is granted", func() bool { return granted(key) })
				kit.Eventually(t, key+" has joined", func() bool { return joined(key) })
				kit.Eventually(t, key+" is SENT", func() bool {
					for _, worker := range []string{"relay", "notify", "deliver"} {
						s.TryTick(worker)
					}
					return s.Count(`SELECT count(*) FROM notification.notifications WHERE status = 'SENT' AND payload->>'source_id' = $1`, "p_"+key) == 1
				})
			}
			works("before")
			for _, link := range gone {
				goes(link)
			}
			if granted("after") || joined("after") {
				t.Error("a request succeeds without a machine; this test shows nothing")
			}
			names.set(name, after)
			works("after")
			if n := s.Count(`SELECT count(*) FROM entitlement.outbox_events`); n != 2 {
				t.Errorf("%d events, want 2", n)
			}
		})
	}
}
