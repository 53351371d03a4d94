package limit

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// unknown is what a request counts as that comes from no IP address, such as over a
// Unix socket.
const unknown = "unknown"

// networkBits of an IPv6 address say whose it is. A subscriber owns a /64 and could
// rotate through it.
const networkBits = 64

// Address returns what a request without an identity counts as: an IPv4 address,
// the /64 of an IPv6 address, or "unknown".
//
// It is the TCP peer. Only when that is a proxy in trusted, it is the rightmost
// entry of X-Forwarded-For that is not in trusted: what stands left of it was
// written by somebody we do not know. An entry that is no address ends the
// search at the one right of it, or at the peer. trusted should hold the
// addresses of proxies only, because whoever is in it can say to be anybody.
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

// cutLast returns what is before and after the last comma, and whether there is one.
func cutLast(line string) (before, entry string, more bool) {
	i := strings.LastIndexByte(line, ',')
	if i < 0 {
		return "", line, false
	}
	return line[:i], line[i+1:], true
}

// parseAddress reads an address with or without port, brackets and zone.
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

// ParsePrefixes reads networks (10.0.0.0/8) and single addresses. Its error names
// the entry that is neither.
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

// mappedBits is how long the prefix ::ffff:0:0 of mapped IPv4 addresses is.
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
