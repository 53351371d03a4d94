package main

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/miniserversystem/miniserver/functions"
)

// Passwords of servers that only people on one machine use.
const (
	composePassword = "miniserver"
	kindPassword    = "development-only"
)

// operator is the user for people, and for programs that keep streams of their own in
// NATS: it may do everything.
const operator = "operator"

// redisUsers is the ACL file of Redis: a user for each function that has keys, and one
// for all in one process. ACL files cannot have comments.
func redisUsers(password string) ([]byte, error) {
	var out bytes.Buffer
	// Health checks ask without a password.
	fmt.Fprintln(&out, "user default on nopass resetkeys resetchannels -@all +ping")
	fmt.Fprintf(&out, "user %s on >%s ~* &* +@all\n", operator, password)
	users := functions.Users()
	for _, name := range slices.Sorted(maps.Keys(users)) {
		if rights := users[name]; len(rights.Keys)+len(rights.Reads) > 0 {
			fmt.Fprintf(&out, "user %s on >%s %s\n", name, password, strings.Join(rights.Redis(), " "))
		}
	}
	return out.Bytes(), nil
}

// natsUsers is the configuration of NATS: a user for each function with rights there, and
// one for all in one process.
func natsUsers(password string) ([]byte, error) {
	var list bytes.Buffer
	users := functions.Users()
	for _, name := range slices.Sorted(maps.Keys(users)) {
		rights := users[name]
		if len(rights.Publishes)+len(rights.Consumes)+len(rights.Watches)+len(rights.Sends)+len(rights.Listens) == 0 {
			continue
		}
		publish, subscribe := rights.NATS(name)
		fmt.Fprintf(&list, "    {user: %s, password: %q, permissions: {\n      publish: [%s]\n      subscribe: [%s]\n    }}\n",
			name, password, quotedList(publish), quotedList(subscribe))
	}
	return render(`authorization {
  users: [
    {user: {{.Operator}}, password: {{printf "%q" .Password}}}
{{.List}}  ]
}
`, map[string]string{"Operator": operator, "Password": password, "List": list.String()})
}

func quotedList(list []string) string {
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = fmt.Sprintf("%q", text)
	}
	return strings.Join(quoted, ", ")
}
