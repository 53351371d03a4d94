package settings

import (
	"bytes"
	"fmt"
	"reflect"
)

// Markdown renders all settings as docs/configuration.md.
func Markdown() []byte {
	var out bytes.Buffer
	out.WriteString(`# Configuration

Everything is set by environment variables, read once at the start. A value that
cannot be used ends the process with one line that names it and its bounds. Durations are
written as in Go: ` + "`30s`, `5m`, `24h`" + `. In place of a value, the path of a file that
holds it can be given in the variable's name with ` + "`_FILE`" + ` after it, as in
` + "`REDIS_URL_FILE`" + `: platforms mount secrets as files.

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
