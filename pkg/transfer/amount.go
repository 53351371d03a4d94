package transfer

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/miniserversystem/miniserver/pkg/fault"
)

// Amount is a positive decimal of up to 15 digits before the point and 4 behind
// it. It never passes through a float.
type Amount struct {
	text string // without needless zeros
}

var decimal = regexp.MustCompile(`^(0|[1-9][0-9]*)(?:\.([0-9]+))?$`)

const (
	maxDigits   = 15
	maxDecimals = 4
)

// ParseAmount reads the text of a JSON number. Errors are fault.Invalid.
func ParseAmount(text string) (Amount, error) {
	bad := func(why string) (Amount, error) {
		return Amount{}, fault.New(fault.Invalid, "amount_invalid", "The amount %s.", why)
	}
	parts := decimal.FindStringSubmatch(text)
	if parts == nil {
		return bad("must be a positive JSON number without an exponent, such as 10000 or 0.5")
	}
	decimals := strings.TrimRight(parts[2], "0")
	switch {
	case len(parts[1]) > maxDigits:
		return bad(fmt.Sprintf("has more than %d digits before the point", maxDigits))
	case len(decimals) > maxDecimals:
		return bad(fmt.Sprintf("has more than %d decimals", maxDecimals))
	case parts[1] == "0" && decimals == "":
		return bad("must be more than 0")
	}
	return Amount{normal(text)}, nil
}

// IsZero reports whether the text of a JSON number is 0, with or without decimals.
func IsZero(text string) bool {
	return decimal.MatchString(text) && strings.Trim(text, "0.") == ""
}

// normal writes a decimal without needless zeros.
func normal(text string) string {
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}

// number is a decimal of Postgres as a JSON number.
func number(text string) json.Number { return json.Number(normal(text)) }

// String is the amount without needless zeros.
func (a Amount) String() string { return a.text }

// hash is the request_hash of a transfer: SHA-256 over its canonical JSON. 10000 and
// 10000.0 are one amount, so they are one request.
func hash(from, to int64, amount Amount, reverses string) []byte {
	text := fmt.Sprintf(`{"fromAccountId":%d,"toAccountId":%d,"amount":%s}`, from, to, amount)
	if reverses != "" {
		text = fmt.Sprintf(`{"reverses":%q}`, reverses)
	}
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
