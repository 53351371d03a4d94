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
