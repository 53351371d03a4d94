// Command funcgo is what the func CLI scaffolds around the root package: its template for
// Go functions with a New, word for word but for this comment and the names of the
// imports. It is a module of its own, as there.
package main

import (
	"fmt"
	"os"

	"knative.dev/func-go/http"

	f "github.com/miniserversystem/miniserver"
)

func main() {
	if err := http.Start(f.New()); err != nil {
		fmt.Fprintln(os.Stderr, err.Error())
		os.Exit(1)
	}
}
