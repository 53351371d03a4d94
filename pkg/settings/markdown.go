package settings

import (
	"bytes"
	"fmt"
	"net/url"
	"reflect"
	"strings"
)

// Markdown renders all settings as docs/configuration.md.
func Markdown() []byte {
	var out bytes.Buffer
	out.WriteString(`# Configuration

Settings are environment variables, read once at the start. An invalid value ends the
process with one line that names the variable and its bounds. Durations are written as
in Go: ` + "`30s`, `5m`, `24h`" + `. A value may also come from a file, because platforms mount
secrets as files: ` + "`REDIS_URL_FILE`" + ` is the path of the file that holds ` + "`REDIS_URL`" + `.

This page is generated from pkg/settings; change it there.

| variable | default | from, to | meaning |
|---|---|---|---|
`)
	fields := reflect.TypeFor[Settings]()
	for i := range fields.NumField() {
		tag := fields.Field(i).Tag
		bounds := ""
		if b, ok := BoundsOf(fields.Field(i)); ok {
			bounds = fmt.Sprintf("`%s`, `%s`", b.Min, b.Max)
		}
		value := tag.Get("envDefault")
		if value != "" {
			value = "`" + value + "`"
		}
		meaning := tag.Get("doc")
		if tag.Get("secret") == "true" {
			meaning += " **Secret.**"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", tag.Get("env"), value, bounds, meaning)
	}
	return out.Bytes()
}

// InForce is a setting as a process has it.
type InForce struct {
	Name    string `json:"name" example:"TICK_BUDGET"`
	Value   string `json:"value" doc:"Empty for a secret." example:"20s"`
	Default string `json:"default" example:"20s"`
	Secret  bool   `json:"secret" doc:"Whether the value is not shown." example:"false"`
	Set     bool   `json:"set" doc:"Whether it differs from the default." example:"false"`
	Meaning string `json:"meaning" example:"How long a tick may work."`
}

// List returns all settings of s, without the values of secrets. Of an address only the
// host is shown: the rest may hold a password.
func (s Settings) List() []InForce {
	values := reflect.ValueOf(s)
	unset, err := LoadFrom(nil)
	if err != nil {
		unset = Settings{} // then all count as set
	}
	var list []InForce
	for i := range values.NumField() {
		tag := values.Type().Field(i).Tag
		name := tag.Get("env")
		if name == "" {
			continue
		}
		one := InForce{Name: name, Default: tag.Get("envDefault"), Meaning: tag.Get("doc"), Secret: tag.Get("secret") == "true"}
		one.Value = written(values.Field(i))
		if isAddress(name) {
			one.Value = addresses(values.Field(i))
		}
		one.Set = !reflect.DeepEqual(values.Field(i).Interface(), reflect.ValueOf(unset).Field(i).Interface())
		one.Secret = one.Secret || strings.Contains(one.Value, hidden)
		if one.Secret {
			one.Value = ""
		}
		list = append(list, one)
	}
	return list
}

// written is a value as it would be written in the environment.
func written(v reflect.Value) string {
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = fmt.Sprint(v.Index(i).Interface())
	}
	return strings.Join(parts, ",")
}

func addresses(v reflect.Value) string {
	parts := strings.Split(written(v), ",")
	for i := range parts {
		parts[i] = withoutPassword(parts[i])
	}
	return strings.Join(parts, ",")
}

// hidden stands for what may hold a password and is not understood.
const hidden = "\x00"

// isAddress reports whether a setting may hold the password of a store or a receiver.
func isAddress(name string) bool {
	return strings.HasSuffix(name, "_URL") || strings.HasSuffix(name, "_URLS")
}

// withoutPassword is an address without what comes before and after its host. Drivers take
// addresses in other forms than URLs, too.
func withoutPassword(text string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" || strings.ContainsAny(u.Host, "@,= ") {
		return hidden
	}
	return u.Scheme + "://" + u.Host
}
