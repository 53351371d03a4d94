package gateway

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fault"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/session"
)

// endTimeout bounds how long a sign-out waits for the issuer. The session here has
// ended before that.
const endTimeout = 3 * time.Second

// logout ends the browser's session here and at the issuer.
func (g *gateway) logout(w http.ResponseWriter, r *http.Request) {
	if err := g.sameSite(r); err != nil {
		g.refuse(w, r, err)
		return
	}
	// Delete every session cookie, although two are as good as none otherwise: a
	// reported sign-out must be real.
	for _, cookie := range g.cookies.sessions(r) {
		ended, err := g.sessions.Delete(r.Context(), cookie)
		if err != nil && !errors.Is(err, session.ErrNone) {
			g.refuse(w, r, err) // it has not ended: try again
			return
		}
		if err == nil {
			g.metrics.session(r.Context(), "ended", 1)
			g.endAtIssuer(r.Context(), ended)
		}
	}
	g.cookies.clear(w, sessionCookie)
	w.WriteHeader(http.StatusNoContent)
}

func (g *gateway) endAtIssuer(ctx context.Context, ended session.Session) {
	// Finish even when the browser is closed at this moment.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if err := g.signIn.End(ctx, ended.IDToken, ended.RefreshToken); err != nil {
		g.env.Logger().WarnContext(ctx, "session not ended at the issuer", "error", err.Error())
	}
}

const (
	formType = "application/x-www-form-urlencoded"
	// signOutMemory is longer than a logout token is valid.
	signOutMemory = 10 * time.Minute
)

var errLogoutForm = fault.New(fault.UnsupportedMedia, "content_type_unsupported", "Send the logout token as a form, as the issuer does.")

// backChannel ends sessions at the issuer's request (OpenID Connect Back-Channel Logout
// 1.0). Valid tokens are not limited: an issuer that ends many sessions at once sends
// many.
func (g *gateway) backChannel(w http.ResponseWriter, r *http.Request) {
	err := g.signOut(w, r)
	if err != nil {
		if limited := g.limit(w, r, auth.Identity{}, err); limited != nil {
			err = limited
		}
		g.refuse(w, r, err)
		return
	}
	w.WriteHeader(http.StatusOK)
}

func (g *gateway) signOut(w http.ResponseWriter, r *http.Request) error {
	if !fn.HasMediaType(r.Header.Get("Content-Type"), formType) {
		return errLogoutForm
	}
	if _, err := fn.BufferBody(w, r); err != nil {
		return err
	}
	if err := r.ParseForm(); err != nil {
		return fault.New(fault.Malformed, "request_malformed", "The form cannot be read.")
	}
	asked, err := g.signIn.CheckSignOut(r.Context(), r.PostForm.Get("logout_token"))
	if err != nil {
		return err
	}
	var ended int
	if asked.SID != "" {
		ended, err = g.sessions.EndSID(r.Context(), asked.Issuer, asked.SID)
	} else {
		// A token that is sent again must not end the sessions that came after it.
		err = g.sessions.Once(r.Context(), asked.Issuer+" "+asked.ID, signOutMemory, func() (err error) {
			ended, err = g.sessions.EndSubject(r.Context(), asked.Issuer, asked.Subject)
			return err
		})
	}
	if err == nil {
		g.metrics.session(r.Context(), "ended", ended)
		g.env.Logger().InfoContext(r.Context(), "sessions ended by the issuer", "sessions", ended)
	}
	return err
}
