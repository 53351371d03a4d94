package issuer

import (
	"net/http"

	"github.com/zitadel/oidc/v3/pkg/oidc"
)

// maxRequestBody is more than any form of the protocol needs.
const maxRequestBody = 64 << 10 // bytes

// withRoutes serves the pages and the library's endpoints, all below a path.
func withRoutes(path string, library http.Handler, pages *loginPages) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", noStore(library))
	// What may be cached: it has no secrets and changes rarely.
	mux.Handle(oidc.DiscoveryEndpoint, library)
	mux.Handle(keysPath, library)
	// The library would read secrets from the query of a GET, which ends up in logs and
	// histories.
	for _, secret := range []string{tokenPath, introspectionPath, revocationPath} {
		mux.Handle("POST "+secret, noStore(library))
		mux.HandleFunc(secret, postOnly)
	}
	mux.Handle("GET "+loginPath, noStore(http.HandlerFunc(pages.show)))
	mux.Handle("POST "+loginPath, noStore(http.HandlerFunc(pages.submit)))
	mux.Handle("GET "+signedOutPath, noStore(http.HandlerFunc(showSignedOut)))
	return http.StripPrefix(path, http.MaxBytesHandler(mux, maxRequestBody))
}

func noStore(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

func postOnly(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	http.Error(w, http.StatusText(http.StatusMethodNotAllowed), http.StatusMethodNotAllowed)
}
