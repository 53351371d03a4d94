package keycloak

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/infra/dev/issuer"
)

// realmText is what tests read of a realm.
type realmText struct {
	KeycloakVersion     string
	Realm               string
	AccessTokenLifespan int
	Clients             []clientText
	Users               []struct {
		ID, Username, FirstName, LastName, Email string
		EmailVerified                            bool
		ServiceAccountClientID                   string
		RealmRoles                               []string
		Credentials                              []struct{ Type, Value string }
	}
}

type clientText struct {
	ClientID, Secret string
	Enabled          bool
	RedirectURIs     []string
	Attributes       map[string]string
}

func configured(t *testing.T, o Options) realmText {
	t.Helper()
	raw, err := configure(o)
	if err != nil {
		t.Fatal(err)
	}
	var realm realmText
	if err := json.Unmarshal(raw, &realm); err != nil {
		t.Fatal(err)
	}
	return realm
}

func TestSamePeopleAsTheDevelopmentIssuer(t *testing.T) {
	t.Parallel()
	var got []issuer.User
	for _, u := range configured(t, Options{}).Users {
		if u.ServiceAccountClientID != "" {
			continue
		}
		if !u.EmailVerified || len(u.Credentials) != 1 || u.Credentials[0].Type != "password" {
			t.Fatalf("%s cannot sign in as in the development issuer: %+v", u.Username, u)
		}
		got = append(got, issuer.User{
			Subject: u.ID, Username: u.Username, Password: u.Credentials[0].Value,
			GivenName: u.FirstName, FamilyName: u.LastName, Email: u.Email, Roles: u.RealmRoles,
		})
	}
	if want := issuer.Users(); !reflect.DeepEqual(got, want) {
		t.Errorf("realm.json has\n%+v, want\n%+v", got, want)
	}
}

func TestSameClientsAsTheDevelopmentIssuer(t *testing.T) {
	t.Parallel()
	realm := configured(t, Options{})
	secrets := map[string]string{}
	for _, c := range realm.Clients {
		if c.Enabled {
			secrets[c.ClientID] = c.Secret
		}
	}
	if want := map[string]string{
		issuer.WebClientID: issuer.WebClientSecret, issuer.OpsClientID: issuer.OpsClientSecret,
		issuer.PurchaseServiceClientID: issuer.PurchaseServiceClientSecret,
	}; !reflect.DeepEqual(secrets, want) {
		t.Errorf("clients: %v, want %v", secrets, want)
	}
	services := map[string][]string{}
	for _, u := range realm.Users {
		if u.ServiceAccountClientID != "" {
			services[u.ServiceAccountClientID] = append([]string{u.ID}, u.RealmRoles...)
		}
	}
	if want := map[string][]string{
		issuer.OpsClientID:             {issuer.OpsSubject, issuer.RoleOperator},
		issuer.PurchaseServiceClientID: {issuer.PurchaseServiceSubject, issuer.RoleEntitlementWriter},
	}; !reflect.DeepEqual(services, want) {
		t.Errorf("service accounts: %v, want %v", services, want)
	}
	if want := int(issuer.DefaultAccessTokenLifetime / time.Second); realm.AccessTokenLifespan != want {
		t.Errorf("access tokens live %d s, want %d", realm.AccessTokenLifespan, want)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	realm := configured(t, Options{
		RedirectURIs:           []string{"http://127.0.0.1:1/a", "http://127.0.0.1:2/b"},
		PostLogoutRedirectURIs: []string{"http://127.0.0.1:1/", "http://127.0.0.1:2/"},
		BackChannelLogoutURL:   "http://127.0.0.1:1/c", AccessTokenLifetime: 7 * time.Second,
	})
	web := realm.Clients[slices.IndexFunc(realm.Clients, func(c clientText) bool { return c.ClientID == issuer.WebClientID })]
	if strings.Join(web.RedirectURIs, " ") != "http://127.0.0.1:1/a http://127.0.0.1:2/b" ||
		web.Attributes["post.logout.redirect.uris"] != "http://127.0.0.1:1/##http://127.0.0.1:2/" ||
		web.Attributes["backchannel.logout.url"] != "http://127.0.0.1:1/c" ||
		web.Attributes["pkce.code.challenge.method"] != "S256" || realm.AccessTokenLifespan != 7 {
		t.Errorf("the options gave %+v, %d s", web, realm.AccessTokenLifespan)
	}
	for _, lifetime := range []time.Duration{-time.Second, 1500 * time.Millisecond} {
		if _, err := configure(Options{AccessTokenLifetime: lifetime}); err == nil {
			t.Errorf("%v is accepted", lifetime)
		}
	}
}

// Keycloak takes a realm without a version for an old one, and adds what old realms lack.
func TestVersionOfTheRealm(t *testing.T) {
	t.Parallel()
	if got := configured(t, Options{}).KeycloakVersion; got != Version {
		t.Errorf("realm.json is for Keycloak %s, and %s is run", got, Version)
	}
}

func TestJavaVersion(t *testing.T) {
	t.Parallel()
	for printed, want := range map[string]int{
		"openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime": 17,
		"Picked up _JAVA_OPTIONS: -Xmx1g\njava version \"21\" x":  21,
		`java version "1.8.0_392"`:                                1,
		"no java":                                                 0,
	} {
		if got := javaVersion(printed); got != want {
			t.Errorf("%q: %d, want %d", printed, got, want)
		}
	}
}
