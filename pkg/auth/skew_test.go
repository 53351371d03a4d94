package auth_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/miniserversystem/miniserver/pkg/auth"
)

// A statement contains when it ends but not when it was made: a function whose clock is a
// little behind the gateway's must not refuse it.
func TestStatementHasNoTimeOfIssue(t *testing.T) {
	t.Parallel()
	private, _, err := auth.NewKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := auth.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	statement, err := signer.Sign(auth.Call{Function: "grant"}, auth.Identity{Subject: "u_1"})
	if err != nil {
		t.Fatal(err)
	}
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(statement, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	if text := string(claims); strings.Contains(text, `"iat"`) || strings.Contains(text, `"nbf"`) || !strings.Contains(text, `"exp"`) {
		t.Errorf("the claims are %s, want exp without iat and nbf", text)
	}
}
