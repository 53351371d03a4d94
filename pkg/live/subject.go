package live

import (
	"github.com/nats-io/nats.go"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Everybody is the subject of the nudges of all users.
const Everybody = prefix + "*"

const (
	prefix = "live."
	// maxUserID keeps a subject far below the length (4 KiB a protocol line) at which the
	// broker closes the whole connection.
	maxUserID = 128
)

func subject(userID string) string { return prefix + userID }

func userOf(msg *nats.Msg) string { return msg.Subject[len(prefix):] }

// listenable reports whether userID is one plain token of a subject: a dot or a wildcard
// would reach other users' subjects.
func listenable(userID string) bool {
	if userID == "" || len(userID) > maxUserID {
		return false
	}
	for i := range len(userID) {
		switch c := userID[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// ErrUserID is the error for a user id that cannot be a subject.
var ErrUserID = fault.New(fault.Invalid, "live_user_id_invalid",
	"Live notifications need a user id of 1 to %d letters, digits, _ and -; read the inbox instead.", maxUserID)
