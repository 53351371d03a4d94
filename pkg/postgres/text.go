package postgres

import "strings"

// Storable replaces what text and jsonb cannot hold, NUL and broken UTF-8, and
// cuts text to at most limit bytes.
func Storable(text string, limit int) string {
	if len(text) > limit {
		text = text[:limit]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", "\uFFFD"), "\uFFFD")
}
