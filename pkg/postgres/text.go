package postgres

import "strings"

// Storable replaces NUL and broken UTF-8, which text and jsonb cannot hold, and cuts text
// to at most limit bytes.
func Storable(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
}
