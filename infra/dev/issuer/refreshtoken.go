package issuer

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
)

const refreshKeyBytes = 32

// refreshTokens makes and reads refresh tokens. A token names its session and
// its number in the family, under a MAC: that way an old member of a family is
// recognised without a list of all that were ever made.
type refreshTokens struct{ key [refreshKeyBytes]byte }

func newRefreshTokens() refreshTokens {
	var r refreshTokens
	rand.Read(r.key[:]) //nolint:errcheck // never fails, by its contract
	return r
}

func (r refreshTokens) make(sessionID string, rotation uint64) string {
	body := sessionID + "." + strconv.FormatUint(rotation, 10)
	return body + "." + r.mac(body)
}

// parse reports false for anything that make did not make.
func (r refreshTokens) parse(token string) (sessionID string, rotation uint64, ok bool) {
	dot := strings.LastIndexByte(token, '.')
	if dot < 0 || !hmac.Equal([]byte(token[dot+1:]), []byte(r.mac(token[:dot]))) {
		return "", 0, false
	}
	sessionID, number, _ := strings.Cut(token[:dot], ".")
	rotation, err := strconv.ParseUint(number, 10, 64)
	return sessionID, rotation, err == nil
}

func (r refreshTokens) mac(body string) string {
	mac := hmac.New(sha256.New, r.key[:])
	mac.Write([]byte(body))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
