package notification

import "strings"

// storable replaces what Postgres text and jsonb cannot hold: NUL and broken
// UTF-8. Only what arrived from outside our own writers needs it.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
}

func storableHeaders(headers map[string][]string) map[string][]string {
	out := make(map[string][]string, len(headers))
	for name, values := range headers {
		for _, value := range values {
			out[storable(name)] = append(out[storable(name)], storable(value))
		}
	}
	return out
}
