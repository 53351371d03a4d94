package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/session"
)

// Paths of the sign-in of browsers. The issuer has to know callbackPath as
// redirect URI and backChannelPath as back-channel logout URL.
const (
	loginPath       = "/login"
	callbackPath    = "/login/callback"
	linkPath        = "/login/link"
	logoutPath      = "/logout"
	backChannelPath = "/logout/backchannel"
)

func (g *gateway) registerSignIn() {
	g.env.Mux.HandleFunc("GET "+loginPath, g.limited(g.login))
	g.env.Mux.HandleFunc("GET "+callbackPath, g.limited(g.callback))
	g.env.Mux.HandleFunc("POST "+linkPath, g.beginLink)
	g.env.Mux.HandleFunc("POST "+logoutPath, g.limited(g.logout))
	g.env.Mux.HandleFunc("POST "+backChannelPath, g.backChannel)
}

// login sends the browser to the issuer. With again=true, a user who is signed in there
// must authenticate once more.
func (g *gateway) login(w http.ResponseWriter, r *http.Request) {
	returnTo, err := returnTo(r)
	if err != nil {
		g.refusePage(w, r, err)
		return
	}
	if err := g.signIns(w, r); err != nil {
		g.refusePage(w, r, err)
		return
	}
	where, err := g.begin(w, r, session.Login{ReturnTo: returnTo}, r.URL.Query().Get("again") == "true")
	if err != nil {
		g.refusePage(w, r, err)
		return
	}
	http.Redirect(w, r, where, http.StatusSeeOther)
}

// begin stores a sign-in and returns the address where the browser continues it.
func (g *gateway) begin(w http.ResponseWriter, r *http.Request, login session.Login, again bool) (string, error) {
	proof := auth.NewProof()
	login.Nonce, login.Verifier = proof.Nonce, proof.Verifier
	state, secret, err := g.sessions.BeginLogin(r.Context(), login)
	if err != nil {
		return "", err
	}
	where, err := g.signIn.Begin(r.Context(), state, proof, again)
	if err != nil {
		return "", err
	}
	g.cookies.setLogin(w, r, state, secret)
	return where, nil
}

// callback answers the browser that the issuer sends back.
func (g *gateway) callback(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Referrer-Policy", "no-referrer") // the address holds a code
	query := r.URL.Query()
	state := query.Get("state")
	login, err := g.sessions.TakeLogin(r.Context(), state, g.cookies.login(r, state))
	if err != nil {
		g.refusePage(w, r, err) // when Redis is away, the same address works later
		return
	}
	g.cookies.clear(w, loginName(state))
	grant, err := g.signIn.Finish(r.Context(), query, auth.Proof{Nonce: login.Nonce, Verifier: login.Verifier})
	if err == nil && login.LinkTo != "" {
		err = g.finishLink(r, login, grant)
	} else if err == nil {
		err = g.open(w, r, grant)
	}
	if err != nil {
		g.env.Logger().InfoContext(r.Context(), "sign-in failed", "error", err.Error())
		if fault.Of(err) == fault.Unavailable {
			// Not "send the same again": its state and code are used up.
			err = &fault.Error{
				Kind: fault.Unavailable, Code: "unavailable", RetryAfter: fault.DefaultRetryAfter, Cause: err,
				Detail: "The sign-in cannot be finished at the moment; start again at /login.",
			}
		}
		g.refusePage(w, r, err)
		return
	}
	seeOther(w, login.ReturnTo)
}

// seeOther sends the browser to a path on this site. http.Redirect would also clean the
// part after #.
func seeOther(w http.ResponseWriter, path string) {
	var ascii strings.Builder
	for _, b := range []byte(path) {
		if b >= utf8.RuneSelf {
			fmt.Fprintf(&ascii, "%%%02X", b)
		} else {
			ascii.WriteByte(b)
		}
	}
	w.Header().Set("Location", ascii.String())
	w.WriteHeader(http.StatusSeeOther)
}

// open creates the session of a user who signed in.
func (g *gateway) open(w http.ResponseWriter, r *http.Request, grant auth.Grant) error {
	registered, err := g.register(r.Context(), grant.Identity)
	if err != nil {
		return err
	}
	cookie, err := g.sessions.Create(r.Context(), session.Session{
		UserID: registered.UserID, Issuer: grant.Issuer, Subject: grant.Subject, Client: grant.Client,
		SID: grant.SID, Roles: grant.Roles, AuthTime: grant.AuthTime,
		IDToken: grant.IDToken, RefreshToken: grant.RefreshToken, RenewAt: grant.Expiry.Add(-renewBefore),
	})
	if err != nil {
		return err
	}
	if before := g.cookies.session(r); before != "" {
		// Another tab's, or another user's on the same machine: end it.
		if _, err := g.sessions.Delete(r.Context(), before); err != nil && !errors.Is(err, session.ErrNone) {
			return err
		}
	}
	g.metrics.session(r.Context(), "opened", 1)
	g.cookies.set(w, sessionCookie, cookie, g.env.Settings.SessionLifetime)
	return nil
}

const maxReturnTo = 2048

var errReturnTo = fault.New(fault.Malformed, "return_to_invalid",
	"return_to must be a path on this site, such as /shop?item=1.")

// returnTo returns the path that the browser goes to after sign-in. It must be on this
// site: otherwise a link could send users who just signed in to any other site.
func returnTo(r *http.Request) (string, error) {
	values, given := r.URL.Query()["return_to"]
	if !given {
		return "/", nil
	}
	path := values[0]
	if len(values) > 1 || len(path) > maxReturnTo || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") ||
		strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }) {
		return "", errReturnTo
	}
	parsed, err := url.Parse(path)
	if err != nil || parsed.Scheme != "" || parsed.Host != "" || parsed.User != nil ||
		strings.HasPrefix(parsed.Path, "//") ||
		strings.ContainsFunc(parsed.Path, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\\' }) {
		return "", errReturnTo
	}
	return path, nil
}
