// Package account maps identities to users. An identity is a person's name at an OpenID
// Connect issuer (issuer and subject); the user id is ours, and names the person in the
// rest of the system. An identity belongs to one user, until that user is erased. Accounts
// are never merged, and no e-mail address is stored, because addresses can change hands and are not
// always verified.
package account

import (
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/postgres"
)

// Account is one user.
type Account struct {
	UserID     string     `json:"user_id" doc:"Names the user everywhere in this system." example:"u_01h455vb4pex5vsknk084sn02q"`
	Roles      []string   `json:"roles" nullable:"false" doc:"The roles at the last sign-in, sorted." example:"[\"player\"]"`
	Identities []Identity `json:"identities" nullable:"false" doc:"The user's identities at issuers, in the order of linking."`
	CreatedAt  time.Time  `json:"created_at" doc:"When the user was created." example:"2026-01-08T07:10:00.000000Z"`
}

// Identity is a user's name at an issuer.
type Identity struct {
	Issuer   string    `json:"issuer" doc:"The issuer's URL." example:"https://login.example.com"`
	Subject  string    `json:"subject" doc:"The user's name at the issuer." example:"248289761001"`
	LinkedAt time.Time `json:"linked_at" doc:"When it was linked to this user." example:"2026-01-08T07:10:00.000000Z"`
}

// Limits of an account. Lengths are in characters.
const (
	MaxIdentities = 10
	MaxRoles      = 64

	maxIssuer  = 512
	maxSubject = 255 // OpenID Connect Core allows no more
	maxRole    = 64
)

// Memory is how long others may remember which user an identity is.
const Memory = time.Minute

// Errors of this domain.
var (
	ErrNotFound = fault.New(fault.NotFound, "account_not_found",
		"You have no player's account yet; send POST /v1/me first, which creates it.")
	ErrIdentityTaken = fault.New(fault.Conflict, "identity_taken",
		"The identity belongs to another account, and accounts are never merged; sign in with it to use that account.")
	ErrTooManyIdentities = fault.New(fault.Conflict, "too_many_identities",
		"The account already has %d identities, the maximum; sign in with one of them.", MaxIdentities)
	ErrIdentityInvalid = fault.New(fault.Invalid, "identity_invalid",
		"An issuer has 1 to %d and a subject 1 to %d characters of valid UTF-8 without NUL; use an issuer whose identities fit.", maxIssuer, maxSubject)
)

// Store reads and writes accounts.
type Store struct {
	pool *pgxpool.Pool
}

// NewStore returns a store on pool.
func NewStore(pool *pgxpool.Pool) *Store { return &Store{pool: pool} }

// validate returns ErrIdentityInvalid for identities that the schema refuses. Postgres
// alone is not enough: a read refuses no length, and a NUL breaks the simple protocol.
func validate(issuer, subject string) error {
	if !fits(issuer, maxIssuer) || !fits(subject, maxSubject) {
		return ErrIdentityInvalid
	}
	return nil
}

// fits reports whether text can be stored unchanged and has 1 to limit characters.
func fits(text string, limit int) bool {
	n := utf8.RuneCountInString(text)
	return n >= 1 && n <= limit && postgres.Storable(text, len(text)) == text
}

// wrap is postgres.Wrap for statements that store an identity. Bad data is then an
// identity that fits the columns but not the index: 4-byte characters almost to the
// limits.
func wrap(operation string, err error) error {
	if postgres.BadData(err) {
		return ErrIdentityInvalid
	}
	return postgres.Wrap(operation, err)
}
