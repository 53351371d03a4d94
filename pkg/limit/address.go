package limit

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// unknown is the address of requests without an IP address, such as over a Unix socket.
const unknown = "unknown"

// networkBits is the prefix of an IPv6 address that counts: a subscriber owns a /64 and
// could rotate through it.
const networkBits = 64

// Address returns the key by which a request without an identity counts: an IPv4
// address, the /64 of an IPv6 address, or "unknown".
//
// It is the TCP peer. Only if the peer is a proxy in trusted, it is the rightmost entry
// of X-Forwarded-For that is not in trusted: entries left of it may be forged. An invalid
// entry ends the search at the entry right of it, or at the peer. trusted should hold
// addresses of proxies only, because a trusted host can claim any address.
func Address(r *http.Request, trusted []netip.Prefix) string {
	peer, ok := parseAddress(r.RemoteAddr)
	if !ok {
		return unknown
	}
	return counted(client(peer, r.Header.Values("X-Forwarded-For"), trusted))
}

func client(last netip.Addr, forwarded []string, trusted []netip.Prefix) netip.Addr {
	for i := len(forwarded) - 1; i >= 0; i-- {
		for line, more := forwarded[i], true; more; {
			if !contains(trusted, last) {
				return last
			}
			var entry string
			line, entry, more = cutLast(line)
			a, ok := parseAddress(entry)
			if !ok {
				return last
			}
			last = a
		}
	}
	return last
}

// cutLast splits at the last comma, and returns whether there is one.
func cutLast(line string) (before, entry string, more bool) {
	i := strings.LastIndexByte(line, ',')
	if i < 0 {
		return "", line, false
	}
	return line[:i], line[i+1:], true
}

// parseAddress parses an address with or without port, brackets and zone.
func parseAddress(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	a, err := netip.ParseAddr(s)
	if err != nil {
		var ap netip.AddrPort
		ap, err = netip.ParseAddrPort(s)
		a = ap.Addr()
	}
	if inner, ok := strings.CutPrefix(s, "["); err != nil && ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			a, err = netip.ParseAddr(inner)
		}
	}
	return a.WithZone("").Unmap(), err == nil
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func counted(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	return netip.PrefixFrom(a, networkBits).Masked().String()
}

// ParsePrefixes parses networks (10.0.0.0/8) and single addresses. Its error names the
// invalid entry.
func ParsePrefixes(texts []string) ([]netip.Prefix, error) {
	prefixes := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		p, err := parsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%q is neither a network such as 10.0.0.0/8 nor an address: %w", text, err)
		}
		prefixes = append(prefixes, p)
	}
	return prefixes, nil
}

// mappedBits is the length of the prefix ::ffff:0:0 of mapped IPv4 addresses.
const mappedBits = 96

func parsePrefix(text string) (netip.Prefix, error) {
	var p netip.Prefix
	if strings.Contains(text, "/") {
		var err error
		if p, err = netip.ParsePrefix(text); err != nil {
			return p, err
		}
	} else {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return p, err
		}
		if a.Zone() != "" {
			return p, fmt.Errorf("zones are not supported")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	// Addresses are compared unmapped, so a mapped network would match none.
	if p.Addr().Is4In6() {
		if p.Bits() < mappedBits {
			return p, fmt.Errorf("it is more than all of IPv4")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mappedBits)
	}
	return p.Masked(), nil
}
