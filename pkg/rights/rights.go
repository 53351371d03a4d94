// Package rights says what a function may do at the stores that know it by name: which
// keys it reaches in Redis, which subjects in NATS. From a function's Rights come the
// rules of its user in Redis' ACL and its permissions in NATS.
package rights

import (
	"slices"
	"strings"

	"github.com/miniserversystem/miniserver/pkg/jetstream"
)

// Rights of one function, or of several together. The zero Rights are none.
type Rights struct {
	// Keys are the patterns of the Redis keys that it reads and writes: mm:*.
	Keys []string
	// Reads are the patterns of those that it only reads, without scripts.
	Reads []string

	// Publishes are the subjects whose events it publishes to JetStream.
	Publishes []string
	// Consumes are the durable consumers that it takes events from, Watches those of
	// which it asks how far they are.
	Consumes, Watches []Consumer
	// Sends and Listens are subjects of core NATS, of messages that may get lost.
	Sends, Listens []string
}

// Consumer is a durable consumer on the stream of a subject.
type Consumer struct{ Subject, Durable string }

// Union is what a process may that holds several functions.
func Union(all ...Rights) (u Rights) {
	for _, r := range all {
		u.Keys, u.Reads = append(u.Keys, r.Keys...), append(u.Reads, r.Reads...)
		u.Publishes = append(u.Publishes, r.Publishes...)
		u.Consumes, u.Watches = append(u.Consumes, r.Consumes...), append(u.Watches, r.Watches...)
		u.Sends, u.Listens = append(u.Sends, r.Sends...), append(u.Listens, r.Listens...)
	}
	return u
}

// commands are those that any function may call: to read and write keys, and to run
// scripts. Commands on all keys at once (FLUSHALL, KEYS, SCAN), on the server (CONFIG,
// SHUTDOWN) or on other clients are not among them.
const commands = "-@all +@read +@write +@connection +@transaction -@scripting -@dangerous -@admin " +
	"-scan -randomkey -dbsize +eval +evalsha +time +cluster|slots +cluster|shards +cluster|nodes"

// Redis are the rules of an ACL user with these rights, beside its name and password.
func (r Rights) Redis() []string {
	rules := []string{"resetkeys", "resetchannels"}
	for _, key := range unique(r.Keys) {
		rules = append(rules, "~"+key)
	}
	for _, key := range unique(r.Reads) {
		rules = append(rules, "%R~"+key)
	}
	return append(rules, strings.Fields(commands)...)
}

// NATS are the subjects on which a user with these rights may publish, and to which it
// may subscribe. It makes the streams that it uses where they are missing; one that
// exists it cannot change.
func (r Rights) NATS(user string) (publish, subscribe []string) {
	publish = append(publish, "$JS.API.INFO") // what readiness asks
	for _, subject := range r.Publishes {
		publish = append(publish, subject, "$JS.API.STREAM.CREATE."+jetstream.StreamName(subject))
	}
	for _, c := range append(slices.Clone(r.Consumes), r.Watches...) {
		publish = append(publish, "$JS.API.STREAM.CREATE."+jetstream.StreamName(c.Subject))
		publish = append(publish, "$JS.API.CONSUMER.CREATE."+jetstream.StreamName(c.Subject)+"."+c.Durable)
	}
	for _, c := range r.Consumes {
		name := jetstream.StreamName(c.Subject) + "." + c.Durable
		publish = append(publish, "$JS.API.CONSUMER.MSG.NEXT."+name, "$JS.ACK."+name+".>")
	}
	for _, c := range r.Watches {
		stream := jetstream.StreamName(c.Subject)
		publish = append(publish, "$JS.API.CONSUMER.INFO."+stream+"."+c.Durable, "$JS.API.STREAM.INFO."+stream, "$JS.API.STREAM.MSG.GET."+stream)
	}
	return unique(append(publish, r.Sends...)), unique(append([]string{jetstream.Inbox(user) + ".>"}, r.Listens...))
}

func unique(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list))) // the list may be the registry's own
}
