package issuer

import "slices"

// The realm roles.
const (
	// RolePlayer is the role of everybody who plays.
	RolePlayer = "player"
	// RoleOperator is the role of those who operate the service.
	RoleOperator = "operator"
	// RoleViewer is the role of those who may look at what operators see.
	RoleViewer = "operations-viewer"
	// RoleEntitlementWriter may grant entitlements.
	RoleEntitlementWriter = "entitlement-writer"
)

// The subjects of the seeded users. They are identifiers rather than names, as
// in Keycloak, and do not change.
const (
	AliceSubject = "a11ce000-0000-4000-8000-000000000001"
	BobSubject   = "b0b00000-0000-4000-8000-000000000002"
	CarolSubject = "ca201000-0000-4000-8000-000000000003"
	OlgaSubject  = "01ca0000-0000-4000-8000-000000000004"
	VeraSubject  = "0e2a0000-0000-4000-8000-000000000005"
)

// User is a seeded person.
type User struct {
	// Subject is the `sub` of the user's tokens.
	Subject string
	// Username is the name to sign in with, and preferred_username.
	Username string
	// Password is the same as the name: this is for development only.
	Password string
	// GivenName and FamilyName make up the name.
	GivenName, FamilyName string
	// Email is verified.
	Email string
	// Roles are the realm roles.
	Roles []string
}

// Users returns the seeded users: alice, bob and carol, who play, olga, who operates the
// service as well, and vera, who may look at it.
func Users() []User {
	return []User{
		seedUser(AliceSubject, "alice", "Alice", RolePlayer),
		seedUser(BobSubject, "bob", "Bob", RolePlayer),
		seedUser(CarolSubject, "carol", "Carol", RolePlayer),
		seedUser(OlgaSubject, "olga", "Olga", RolePlayer, RoleOperator),
		seedUser(VeraSubject, "vera", "Vera", RolePlayer, RoleViewer),
	}
}

func seedUser(subject, username, givenName string, roles ...string) User {
	return User{
		Subject:    subject,
		Username:   username,
		Password:   username,
		GivenName:  givenName,
		FamilyName: "Example",
		Email:      username + "@example.test",
		Roles:      roles,
	}
}

// account is a subject of tokens: a user or a service.
type account struct {
	User
	// service is true for the account of a client, which has no person behind
	// it and so no name or address.
	service bool
}

// directory finds accounts; it does not change after it was made.
type directory struct {
	bySubject map[string]account
	byName    map[string]account
}

func newDirectory(clients []*client) directory {
	d := directory{bySubject: map[string]account{}, byName: map[string]account{}}
	for _, user := range Users() {
		d.bySubject[user.Subject] = account{User: user}
		d.byName[user.Username] = account{User: user}
	}
	for _, c := range clients {
		if c.serviceSubject == "" {
			continue
		}
		// Services cannot sign in, so they are not found by name.
		d.bySubject[c.serviceSubject] = account{service: true, User: User{
			Subject:  c.serviceSubject,
			Username: serviceAccountPrefix + c.id,
			Roles:    slices.Clone(c.serviceRoles),
		}}
	}
	return d
}

// authenticate checks a password. An unknown name takes as long as a wrong password, so
// the answer does not reveal which names exist.
func (d directory) authenticate(username, password string) (account, bool) {
	found, known := d.byName[username]
	match := equalSecrets(found.Password, password)
	return found, known && match
}
