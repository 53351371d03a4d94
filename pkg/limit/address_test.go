package limit_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/limit"
)

var proxies = []string{"10.0.0.0/8", "fd00::/8", "192.0.2.7", "2001:db8:ffff::1", "::ffff:172.16.0.0/108"}

func prefixes(t testing.TB) []netip.Prefix {
	t.Helper()
	p, err := limit.ParsePrefixes(proxies)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// from returns a request from peer with lines of X-Forwarded-For.
func from(peer string, lines ...string) *http.Request {
	r := &http.Request{RemoteAddr: peer, Header: http.Header{}}
	for _, line := range lines {
		r.Header.Add("X-Forwarded-For", line)
	}
	return r
}

func TestAddress(t *testing.T) {
	t.Parallel()
	trusted := prefixes(t)
	for _, c := range []struct {
		want, peer string
		lines      []string
	}{
		// No proxy: the caller may write anything into the header.
		{"198.51.100.1", "198.51.100.1:4321", nil},
		{"198.51.100.1", "198.51.100.1:4321", []string{"203.0.113.9"}},
		{"198.51.100.1", "198.51.100.1:4321", []string{"10.0.0.1", "10.0.0.2, 10.0.0.3"}},
		{"198.51.100.1", "[::ffff:198.51.100.1]:4321", []string{"203.0.113.9"}},
		{"2001:db8:1:2::/64", "[2001:db8:1:2:3:4:5:6]:4321", []string{"203.0.113.9"}},
		{"2001:db8:1:2::/64", "[2001:db8:1:2:ffff::1]:1", nil},
		{"fe80::/64", "[fe80::1%eth0]:4321", nil},
		{"192.0.2.8", "192.0.2.8:1", []string{"203.0.113.9"}},
		{"2001:db8:ffff::/64", "[2001:db8:ffff::2]:1", []string{"203.0.113.9"}}, // beside the trusted one
		{"unknown", "@", []string{"203.0.113.9"}},
		{"unknown", "", []string{"203.0.113.9"}},

		// One proxy: the address that it added counts, and nothing before it.
		{"10.0.0.1", "10.0.0.1:80", nil},
		{"10.0.0.1", "10.0.0.1:80", []string{""}},
		{"203.0.113.9", "10.0.0.1:80", []string{"203.0.113.9"}},
		{"203.0.113.9", "192.0.2.7:80", []string{"203.0.113.9"}},
		{"203.0.113.9", "172.31.255.255:80", []string{"203.0.113.9"}}, // trusted as a mapped network
		{"203.0.113.9", "[::ffff:10.0.0.1]:80", []string{"203.0.113.9"}},
		{"203.0.113.9", "[fd00::1%eth0]:80", []string{"203.0.113.9"}},
		{"203.0.113.9", "10.0.0.1:80", []string{"198.51.100.66, 203.0.113.9"}},
		{"203.0.113.9", "10.0.0.1:80", []string{"198.51.100.66", "203.0.113.9"}},
		{"203.0.113.9", "10.0.0.1:80", []string{"203.0.113.9, 198.51.100.66", "10.9.9.9,203.0.113.9"}},
		{"203.0.113.9", "10.0.0.1:80", []string{"junk,,\x00, 203.0.113.9"}},
		{"203.0.113.9", "10.0.0.1:80", []string{strings.Repeat("10.0.0.1,", 10_000) + "203.0.113.9"}},

		// Several proxies.
		{"203.0.113.9", "10.0.0.1:80", []string{"198.51.100.66, 203.0.113.9, 10.0.0.2", "fd00::1", "192.0.2.7"}},
		{"203.0.113.9", "10.0.0.1:80", []string{"10.0.0.4, 203.0.113.9, 10.0.0.2, 10.0.0.3"}},
		{"10.0.0.4", "10.0.0.1:80", []string{"10.0.0.4", "10.0.0.3"}}, // a caller in the trusted network

		// The forms in which proxies write an address.
		{"203.0.113.9", "10.0.0.1:80", []string{" \t203.0.113.9\t "}},
		{"203.0.113.9", "10.0.0.1:80", []string{"203.0.113.9:5678"}},
		{"203.0.113.9", "10.0.0.1:80", []string{"::ffff:203.0.113.9"}},
		{"203.0.113.9", "10.0.0.1:80", []string{"[::ffff:cb00:7109]:5678"}},
		{"2001:db8:1:2::/64", "10.0.0.1:80", []string{"2001:db8:1:2:3:4:5:6"}},
		{"2001:db8:1:2::/64", "10.0.0.1:80", []string{"[2001:DB8:1:2::6]"}},
		{"2001:db8:1:2::/64", "10.0.0.1:80", []string{"[2001:db8:1:2::6]:443"}},
		{"203.0.113.9", "10.0.0.1:80", []string{"203.0.113.9, [fd00::2]:443, 10.0.0.5:80"}},

		// Text that is no address ends the search at the last one that was read.
		{"10.0.0.1", "10.0.0.1:80", []string{"203.0.113.9, junk"}},
		{"10.0.0.1", "10.0.0.1:80", []string{"203.0.113.9,"}},
		{"10.0.0.1", "10.0.0.1:80", []string{"203.0.113.9", ""}},
		{"10.0.0.2", "10.0.0.1:80", []string{"203.0.113.9, unknown, 10.0.0.2"}},
		{"10.0.0.2", "10.0.0.1:80", []string{"203.0.113.9, 010.0.0.9, 10.0.0.2"}},
		{"10.0.0.1", "10.0.0.1:80", []string{"203.0.113.9 203.0.113.10"}},
		{"10.0.0.1", "10.0.0.1:80", []string{"203.0.113.9:99999"}},
		{"10.0.0.1", "10.0.0.1:80", []string{"[203.0.113.9"}},
		{"10.0.0.1", "10.0.0.1:80", []string{`"203.0.113.9"`}},
		{"10.0.0.1", "10.0.0.1:80", []string{"for=203.0.113.9"}},
		{"10.0.0.1", "10.0.0.1:80", []string{"203.0.113.0/24"}},
	} {
		if got := limit.Address(from(c.peer, c.lines...), trusted); got != c.want {
			t.Errorf("%s, %q: %s, want %s", c.peer, c.lines, got, c.want)
		}
		if got, peer := limit.Address(from(c.peer, c.lines...), nil), limit.Address(from(c.peer), nil); got != peer {
			t.Errorf("%s, %q: %s without trusted proxies, want %s", c.peer, c.lines, got, peer)
		}
	}
}

// Whatever the header contains, an untrusted peer is counted by its own address, and a
// caller behind a trusted proxy by the address that the proxy added.
func FuzzAddress(f *testing.F) {
	for _, line := range []string{
		"", ",", "203.0.113.9", "10.0.0.1", "10.0.0.1, 10.0.0.2", "[fd00::1]:80, junk, 192.0.2.7", "::ffff:10.0.0.1", "fe80::1%eth0",
		"203.0.113.9\n10.0.0.1", "[::1", "1.2.3.4:5", "2001:db8::1, [2001:db8::2]", strings.Repeat(",", 100), "\xff\x00", "unknown", "[]", "[]:1", "%", "::%",
	} {
		f.Add("198.51.100.1:1", line)
		f.Add("10.0.0.1:1", line)
		f.Add("[2001:db8::1%25]:1", line)
	}
	trusted := prefixes(f)
	f.Fuzz(func(t *testing.T, peer, header string) {
		lines := strings.Split(header, "\n")
		got := limit.Address(from(peer, lines...), trusted)
		if a, err := netip.ParseAddr(got); got != "unknown" && (err != nil || !a.Is4()) {
			if p, err := netip.ParsePrefix(got); err != nil || p.Bits() != 64 || p.Addr().Is4() || p.Addr().Is4In6() || p.Masked() != p {
				t.Errorf("%q is counted as %q, want an IPv4 address or an IPv6 /64", peer, got)
			}
		}
		alone := limit.Address(from(peer), nil)
		if nobody := limit.Address(from(peer, lines...), nil); nobody != alone {
			t.Errorf("%q, %q is counted as %q without trusted proxies, want %q", peer, lines, nobody, alone)
		}
		// Most fuzzed peers are not in the few trusted networks.
		if a, err := netip.ParseAddrPort(peer); err == nil {
			isTrusted := false
			for _, p := range trusted {
				isTrusted = isTrusted || p.Contains(a.Addr().WithZone("").Unmap())
			}
			if !isTrusted && got != alone {
				t.Errorf("%q, %q is counted as %q, want %q: the peer is not trusted", peer, lines, got, alone)
			}
		}
		for _, added := range [][]string{append(lines, "203.0.113.9"), append(lines[:len(lines)-1:len(lines)-1], lines[len(lines)-1]+", 203.0.113.9")} {
			for _, proxied := range [][]string{added, append(added, "[::ffff:10.0.0.2]:80")} {
				if behind := limit.Address(from("10.0.0.1:1", proxied...), trusted); behind != "203.0.113.9" {
					t.Errorf("%q is counted as %q, want 203.0.113.9", proxied, behind)
				}
			}
		}
	})
}

func TestParsePrefixes(t *testing.T) {
	t.Parallel()
	got, err := limit.ParsePrefixes([]string{" 10.1.2.3/8", "192.0.2.7 ", "2001:db8::1", "2001:db8::1/32", "::ffff:10.0.0.1", "::ffff:10.0.0.0/104", "0.0.0.0/0", "::/0"})
	want := "[10.0.0.0/8 192.0.2.7/32 2001:db8::1/128 2001:db8::/32 10.0.0.1/32 10.0.0.0/8 0.0.0.0/0 ::/0]"
	var texts []string
	for _, p := range got {
		texts = append(texts, p.String())
	}
	if text := "[" + strings.Join(texts, " ") + "]"; err != nil || text != want {
		t.Errorf("%s, want %s: %v", text, want, err)
	}
	if got, err := limit.ParsePrefixes(nil); err != nil || len(got) != 0 {
		t.Errorf("no prefixes are parsed as %v, %v", got, err)
	}
	for _, bad := range []string{"", "proxy.example", "10.0.0.0/33", "10.0.0/8", "10.0.0.1:80", "fe80::1%eth0", "fe80::%eth0/64", "::ffff:0.0.0.0/95", "*", "10.0.0.0/08"} {
		if got, err := limit.ParsePrefixes([]string{"10.0.0.0/8", bad}); err == nil || !strings.Contains(err.Error(), `"`+bad+`"`) || got != nil {
			t.Errorf("%q is parsed as %v, %v; want an error that names it", bad, got, err)
		}
	}
}
