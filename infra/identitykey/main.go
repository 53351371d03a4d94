// Command identitykey prints a fresh key pair for the gateway's statements of who
// calls, as two lines for the environment.
package main

import (
	"fmt"
	"os"

	"github.com/miniserversystem/miniserver/pkg/auth"
)

func main() {
	private, public, err := auth.NewKeyPair()
	if err != nil {
		fmt.Fprintln(os.Stderr, "identitykey:", err)
		os.Exit(1)
	}
	fmt.Printf("IDENTITY_SIGNING_KEY='%s'\nIDENTITY_VERIFY_KEYS='%s'\n", private, public)
}
