package session_test

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/session"
)

// A value that was changed, cut, or moved from one session to another opens nothing.
func TestTamperedValues(t *testing.T) {
	t.Parallel()
	f := setup(t)
	admin := sample()
	admin.Roles = []string{"admin"}
	a, b := f.create(admin), f.create(sample())
	ofA, err := f.client.Get(f.ctx, key(a)).Result()
	if err != nil {
		t.Fatal(err)
	}
	ofB, err := f.client.Get(f.ctx, key(b)).Result()
	if err != nil {
		t.Fatal(err)
	}
	flip := func(at int) string {
		changed := []byte(ofB)
		changed[at] ^= 1
		return string(changed)
	}
	for name, value := range map[string]string{
		"moved": ofA, "empty": "", "short": ofB[:5], "nonce only": ofB[:12], "cut": ofB[:len(ofB)-1], "longer": ofB + "x",
		"nonce changed": flip(0), "text changed": flip(20), "tag changed": flip(len(ofB) - 1), "plain": `{"user_id":"u_1"}`,
		"nonce of another": ofA[:12] + ofB[12:],
	} {
		if err := f.client.Set(f.ctx, key(b), value, time.Minute).Err(); err != nil {
			t.Fatal(err)
		}
		if s, err := f.with(limits).Load(f.ctx, b); !errors.Is(err, session.ErrNone) {
			t.Errorf("%s: loaded %+v, %v", name, s, err)
		}
		if _, err := f.store.Renewed(f.ctx, b, due(), nil); !errors.Is(err, session.ErrNone) {
			t.Errorf("%s: renewed, %v", name, err)
		}
		if s, err := f.store.Delete(f.ctx, b); !errors.Is(err, session.ErrNone) {
			t.Errorf("%s: deleted %+v, %v", name, s, err)
		}
	}
	if err := f.client.Set(f.ctx, key(b), ofB, time.Minute).Err(); err != nil {
		t.Fatal(err)
	}
	f.load(a)
	f.load(b)
}

// A stored session opens with the browser's cookie in exactly this way, so that sessions
// outlive a new version of the code.
func TestStoredForm(t *testing.T) {
	t.Parallel()
	f := setup(t)
	derive := func(secret, purpose string) []byte {
		raw, err := base64.RawURLEncoding.DecodeString(secret)
		if err != nil {
			t.Fatal(err)
		}
		derived, err := hkdf.Key(sha256.New, raw, nil, "miniserver "+purpose, 32)
		if err != nil {
			t.Fatal(err)
		}
		return derived
	}
	check := func(what, name string, secret []byte, want any) {
		t.Helper()
		sealed, err := f.client.Get(f.ctx, name).Bytes()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		block, _ := aes.NewCipher(secret)
		aead, _ := cipher.NewGCM(block)
		plain, err := aead.Open(nil, sealed[:12], sealed[12:], []byte(name))
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if text, _ := json.Marshal(want); string(plain) != string(text) {
			t.Errorf("%s is %s, want %s", what, plain, text)
		}
	}
	cookie := f.create(sample())
	id := base64.RawURLEncoding.EncodeToString(derive(cookie, "session id"))
	check("a session", "session:{"+id+"}", derive(cookie, "session encryption"), f.load(cookie))

	login := session.Login{Nonce: "nonce", Verifier: "verifier", ReturnTo: "/", LinkTo: "u_1"}
	state, secret := f.begin(login)
	hash := sha256.Sum256([]byte("43:" + state))
	check("a sign-in", "session:login:{"+base64.RawURLEncoding.EncodeToString(hash[:])+"}", derive(secret, "login encryption"), login)
}

// Neither the keys and values in Redis nor the commands sent to it contain a cookie, a
// token or a user.
func TestRedisLearnsNothing(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var w watch
	store := f.with(limits, &w)
	secrets := []string{
		sample().UserID, issuer, subject, sid, sample().IDToken, sample().RefreshToken, "operator",
		"new-refresh-token", "nonce-1", "verifier-1", "/return-to", "u_link_to", "jti-1",
	}

	cookie, err := store.Create(f.ctx, due())
	if err != nil {
		t.Fatal(err)
	}
	state, secret, err := store.BeginLogin(f.ctx, session.Login{Nonce: "nonce-1", Verifier: "verifier-1", ReturnTo: "/return-to", LinkTo: "u_link_to"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.TakeLogin(f.ctx, state, secret[:42]+"_"); !errors.Is(err, session.ErrLogin) {
		t.Fatal(err)
	}
	if err := store.Once(f.ctx, issuer+" jti-1", time.Minute, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, err := store.EndSID(f.ctx, issuer, "another-sid"); err != nil {
		t.Fatal(err)
	}
	dump := ""
	if _, err := store.Renewed(f.ctx, cookie, due(), func(_ context.Context, s session.Session) (session.Session, error) {
		dump = f.dump() // contains the lock
		s.RefreshToken, s.RenewAt = "new-refresh-token", time.Now().Add(time.Hour)
		return s, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"session:{", "session:renewing:{", "session:sid:{", "session:subject:{", "session:ended:{", "session:once:{", "session:login:{"} {
		if !strings.Contains(dump, part) {
			t.Errorf("the dump has no %s", part)
		}
	}
	dump += f.dump()
	for _, command := range w.commands() {
		dump += fmt.Sprintf("%s\n", command)
	}

	for _, text := range []string{cookie, state, secret} {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, text, string(raw), hex.EncodeToString(raw))
	}
	for _, plain := range secrets {
		if strings.Contains(dump, plain) {
			t.Errorf("%q is in Redis", plain)
		}
	}
}

// dump returns every key and value as text.
func (f *fixture) dump() string {
	f.t.Helper()
	var all strings.Builder
	for _, key := range f.keys() {
		fmt.Fprintln(&all, key)
		switch kind := f.client.Type(f.ctx, key).Val(); kind {
		case "string":
			fmt.Fprintln(&all, f.client.Get(f.ctx, key).Val())
		case "zset":
			fmt.Fprintln(&all, f.client.ZRange(f.ctx, key, 0, -1).Val())
		default:
			f.t.Errorf("%s is a %s", key, kind)
		}
	}
	return all.String()
}

// Each command has one key: with several it fails on a cluster, where each node holds a
// part of the keys. Redis itself returns the keys of a command.
func TestCommandsHaveOneKey(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var w watch
	store := f.with(limits, &w)
	for range 3 {
		if _, err := store.Create(f.ctx, sample()); err != nil {
			t.Fatal(err)
		}
	}
	cookie, err := store.Create(f.ctx, due())
	if err != nil {
		t.Fatal(err)
	}
	f.expire(key(cookie), time.Minute)
	_, loaded := store.Load(f.ctx, cookie)
	_, renewed := store.Renewed(f.ctx, cookie, due(), func(_ context.Context, s session.Session) (session.Session, error) { return s, errTest })
	_, deleted := store.Delete(f.ctx, cookie)
	ended, endErr := store.EndSID(f.ctx, issuer, sid)
	_, subjectErr := store.EndSubject(f.ctx, issuer, subject)
	_, refused := store.Create(f.ctx, sample())
	state, secret, begun := store.BeginLogin(f.ctx, session.Login{})
	_, taken := store.TakeLogin(f.ctx, state, secret)
	once := store.Once(f.ctx, "x", time.Minute, func() error { return nil })
	if !errors.Is(refused, session.ErrNone) || ended != 3 {
		t.Error(refused, ended)
	}
	if err := errors.Join(loaded, renewed, deleted, endErr, subjectErr, begun, taken, once); err != nil {
		t.Fatal(err)
	}
	checked := map[any]int{}
	for _, command := range w.commands() {
		if command[0] == "hello" || command[0] == "client" || command[0] == "auth" || command[0] == "select" {
			continue // sent by the client library to set up a connection
		}
		if command[0] == "multi" || command[0] == "exec" {
			t.Errorf("sent %v, want no transaction", command)
			continue
		}
		found, err := f.client.Do(f.ctx, append([]any{"command", "getkeys"}, command...)...).StringSlice()
		if err != nil || len(found) != 1 {
			t.Errorf("%v has the keys %v, want one: %v", command, found, err)
			continue
		}
		if open, end := strings.Index(found[0], "{"), strings.Index(found[0], "}"); !strings.HasPrefix(found[0], "session:") || open < 0 || end < open+2 {
			t.Errorf("the key is %s, want session:… with a hash tag in braces", found[0])
		}
		checked[command[0]]++
	}
	for _, name := range []string{"get", "getrange", "pttl", "pexpire", "set", "getdel", "del", "eval", "evalsha", "exists", "zscore", "zrange", "zrem"} {
		if checked[name] == 0 {
			t.Errorf("no %s among %v", name, checked)
		}
	}
}

// A cookie has one spelling: what counts as one is the text of 32 bytes, and no other.
func FuzzCookie(f *testing.F) {
	text := base64.RawURLEncoding.EncodeToString(make([]byte, 32))
	for _, seed := range []string{"", text, text + "=", text[:42] + "B", text[:42] + "\n", text[:41] + "\r\n", text[:42] + "+", "\n" + text} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		secret, err := base64.RawURLEncoding.DecodeString(text)
		only := err == nil && len(secret) == 32 && base64.RawURLEncoding.EncodeToString(secret) == text
		if got := session.IsCookie(text); got != only {
			t.Errorf("%q is a cookie: %v, want %v", text, got, only)
		}
	})
}
