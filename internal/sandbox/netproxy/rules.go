package netproxy

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Rules are the hosts and ports that may be reached.
type Rules struct {
	list []pattern
	// outer are further rules, all of which have to have the same.
	outer []Rules
}

// Within returns rules that have only what both have.
func (r Rules) Within(outer Rules) Rules {
	r.outer = append(slices.Clone(r.outer), outer)
	return r
}

// every reports whether something holds for the rules and all outer ones.
func (r Rules) every(holds func(Rules) bool) bool {
	return holds(r) && !slices.ContainsFunc(r.outer, func(o Rules) bool { return !o.every(holds) })
}

// allow reports whether an address may be connected to by itself, or by a name that
// the rules have.
func (r Rules) allow(a netip.Addr, port int, named bool) bool {
	return r.every(func(r Rules) bool { return r.addr(a, port) || public(a) && (named || r.name(a.String(), port)) })
}

// pattern is one "host:port".
type pattern struct {
	name   string     // a host name in lower case; what follows the star where wild is set
	wild   bool       // the name is that, or a name that ends in it
	prefix netip.Addr // an address, where it is one
	port   int        // 0 is any
}

// Parse reads patterns: "host:port", where the host is a name, "*." and a name, "*"
// alone, or an address, and the port a number or "*".
func Parse(patterns []string) (Rules, error) {
	var r Rules
	for _, text := range patterns {
		p, err := parse(text)
		if err != nil {
			return Rules{}, err
		}
		r.list = append(r.list, p)
	}
	return r, nil
}

func parse(text string) (pattern, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return pattern{}, fmt.Errorf("read %q: want \"host:port\"", text)
	}
	var p pattern
	if port != "*" {
		if p.port, err = strconv.Atoi(port); err != nil || p.port < 1 || p.port > 65535 {
			return pattern{}, fmt.Errorf("read %q: want a port from 1 to 65535, or *", text)
		}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		p.prefix = addr.Unmap()
		return p, nil
	}
	p.name = canonical(host)
	if rest, ok := strings.CutPrefix(p.name, "*"); ok {
		p.wild, p.name = true, rest
	}
	if p.name == "" && !p.wild {
		return pattern{}, fmt.Errorf("read %q: want a host before the port, or * for all", text)
	}
	if strings.Contains(p.name, "*") || p.wild && p.name != "" && !strings.HasPrefix(p.name, ".") {
		return pattern{}, fmt.Errorf("read %q: a star stands for the beginning of a name, as in \"*.example.org:443\"", text)
	}
	return p, nil
}

// canonical is a name as it is compared: names know no cases, and may end in a dot.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// name reports whether the rules have a host name, with that port.
func (r Rules) name(name string, port int) bool {
	name = canonical(name)
	return slices.ContainsFunc(r.list, func(p pattern) bool {
		if p.prefix.IsValid() || p.port != 0 && p.port != port {
			return false
		}
		if p.wild {
			return strings.HasSuffix(name, p.name)
		}
		return name == p.name
	})
}

// addr reports whether the rules have an address itself, with that port.
func (r Rules) addr(addr netip.Addr, port int) bool {
	return slices.ContainsFunc(r.list, func(p pattern) bool {
		if p.port != 0 && p.port != port {
			return false
		}
		// The one name that means nothing but this machine.
		return p.prefix.IsValid() && p.prefix == addr || addr.IsLoopback() && !p.wild && p.name == "localhost"
	})
}

// Direct returns the names of loopback that the rules do not have: what a command
// means itself by.
func (r Rules) Direct() []string {
	var names []string
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		if !slices.ContainsFunc(r.list, func(p pattern) bool {
			return p.prefix.IsValid() && p.prefix.String() == name || !p.prefix.IsValid() && !p.wild && p.name == name
		}) {
			names = append(names, name)
		}
	}
	return names
}

// special are blocks that lead to this machine, to its neighbours, or to nobody
// knows where, beside those that netip has names for (IANA's special registries).
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	// Addresses that carry others in them.
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("fec0::/10"), netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("5f00::/16"),
}

// public reports whether an address is one of the public network's.
func public(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate() && a.Zone() == "" &&
		!slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(a) })
}
