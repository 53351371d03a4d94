package main

import (
	"net"
	"net/http"
	"strings"

	function "github.com/miniserversystem/miniserver"
	"github.com/miniserversystem/miniserver/infra/dev/issuer"
	"github.com/miniserversystem/miniserver/infra/dev/shop"
	"github.com/miniserversystem/miniserver/pkg/problem"
	"github.com/miniserversystem/miniserver/pkg/settings"
)

// front puts the demo shop in front of the gateway, on the same address.
func (l *Local) front(s settings.Settings, f *function.Function) http.Handler {
	demo, err := shop.New(shop.Options{
		GatewayURL: s.PublicURL, IssuerURL: s.OIDCIssuer,
		ClientID: issuer.PurchaseServiceClientID, ClientSecret: issuer.PurchaseServiceClientSecret,
		BankClientID: issuer.OpsClientID, BankClientSecret: issuer.OpsClientSecret,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, port, _ := net.SplitHostPort(r.Host)
		switch {
		case host == "localhost" && r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html"):
			// The issuer sends people back to 127.0.0.1, where a cookie of localhost is not
			// sent along.
			http.Redirect(w, r, "http://"+net.JoinHostPort("127.0.0.1", port)+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		case !strings.HasPrefix(r.URL.Path, "/demo/"):
			f.Handle(w, r)
		case err != nil:
			problem.Write(w, err)
		default:
			demo.ServeHTTP(w, r)
		}
	})
}
