package issuer

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"strings"
)

// The fields of the login form.
const (
	loginRequestField = "id"
	usernameField     = "username"
	passwordField     = "password"
)

//go:embed page.css
var pageStyle string

//go:embed page.html
var pageHTML string

var pageTemplate = template.Must(template.New("page").Parse(
	strings.Replace(pageHTML, "/* style */", pageStyle, 1)))

// styleSource lets a browser apply exactly our style and no other.
var styleSource = func() string {
	sum := sha256.Sum256([]byte(pageStyle))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}()

// page is what page.html shows: a form, or only a message.
type page struct {
	Title, Message    string
	Failure           bool // the message is about something that went wrong
	Action            string
	ID, Username      string
	ClientID          string
	redirectURIOrigin string
}

// loginPages lets people sign in.
type loginPages struct {
	store    *storage
	callback string // where the library continues after a sign-in
	action   string // path of the form
}

// show answers with the form.
func (l *loginPages) show(w http.ResponseWriter, r *http.Request) {
	request, err := l.store.logins.get(r.FormValue(loginRequestField))
	if err != nil {
		showExpired(w)
		return
	}
	showPage(w, http.StatusOK, l.form(request, request.loginHint))
}

// submit checks what was typed into the form.
func (l *loginPages) submit(w http.ResponseWriter, r *http.Request) {
	id := r.PostFormValue(loginRequestField)
	request, err := l.store.logins.get(id)
	if err != nil {
		showExpired(w)
		return
	}
	username := r.PostFormValue(usernameField)
	about, ok := l.store.directory.authenticate(username, r.PostFormValue(passwordField))
	if !ok {
		form := l.form(request, username)
		form.Failure, form.Message = true, "Wrong username or password."
		showPage(w, http.StatusUnauthorized, form)
		return
	}
	if err := l.store.logins.complete(id, about); err != nil {
		showExpired(w)
		return
	}
	target := l.callback + "?" + url.Values{loginRequestField: {id}}.Encode()
	http.Redirect(w, r, target, http.StatusSeeOther)
}

func (l *loginPages) form(request *authRequest, username string) page {
	p := page{
		Title:    "Sign in",
		Action:   l.action,
		ID:       request.id,
		ClientID: request.clientID,
		Username: username,
	}
	if target, err := url.Parse(request.redirectURI); err == nil {
		p.redirectURIOrigin = target.Scheme + "://" + target.Host
	}
	return p
}

func showExpired(w http.ResponseWriter) {
	showPage(w, http.StatusBadRequest, page{
		Title: "Sign-in expired", Failure: true,
		Message: "This sign-in is finished or has expired. Go back to the application and sign in again.",
	})
}

func showSignedOut(w http.ResponseWriter, _ *http.Request) {
	showPage(w, http.StatusOK, page{Title: "Signed out", Message: "You are signed out."})
}

func showPage(w http.ResponseWriter, status int, p page) {
	// Chromium applies form-action to the redirects after a form as well, so
	// the client's origin has to be in it.
	formAction := strings.TrimSpace("form-action 'self' " + p.redirectURIOrigin)
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; style-src "+styleSource+"; "+formAction+
		"; base-uri 'none'; frame-ancestors 'none'")
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	// A failure means that the browser has gone.
	_ = pageTemplate.Execute(w, p)
}
