package browser

import (
	"html"
	"net/url"
	"regexp"
	"strings"
)

// Attribute values may hold ">" (scripts in them do).
const attributes = `((?:[^>"']|"[^"]*"|'[^']*')*)`

var (
	formElement  = regexp.MustCompile(`(?is)<form\b` + attributes + `>(.*?)</form>`)
	inputElement = regexp.MustCompile(`(?is)<input\b` + attributes + `>`)
	attribute    = regexp.MustCompile(`(?is)([a-z-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))`)
)

// loginForm is the form that asks for a password.
type loginForm struct {
	action string
	fields url.Values // the hidden ones
}

// findLoginForm returns the first form that asks for a password, or nil.
func findLoginForm(page string) *loginForm {
	for _, found := range formElement.FindAllStringSubmatch(page, -1) {
		form := &loginForm{action: attributesOf(found[1])["action"], fields: url.Values{}}
		asks := false
		for _, input := range inputElement.FindAllStringSubmatch(found[2], -1) {
			field := attributesOf(input[1])
			switch strings.ToLower(field["type"]) {
			case "password":
				asks = asks || field["name"] == "password"
			case "hidden":
				form.fields.Set(field["name"], field["value"])
			}
		}
		if asks {
			return form
		}
	}
	return nil
}

func attributesOf(tag string) map[string]string {
	found := map[string]string{}
	for _, a := range attribute.FindAllStringSubmatch(tag, -1) {
		found[strings.ToLower(a[1])] = html.UnescapeString(a[2] + a[3] + a[4])
	}
	return found
}
