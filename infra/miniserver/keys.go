package main

import (
	"context"
	"fmt"
	"io"

	"github.com/miniserversystem/miniserver/pkg/auth"
)

// keys prints a fresh key pair for the gateway's statements about callers, as two lines
// for the environment.
func keys(_ context.Context, _ []string, out io.Writer) error {
	private, public, err := auth.NewKeyPair()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "IDENTITY_SIGNING_KEY='%s'\nIDENTITY_VERIFY_KEYS='%s'\n", private, public)
	return err
}
