package agones

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// Keys of the labels and annotations on a game server. The first is Agones' own.
const (
	fleetLabel        = "agones.dev/fleet"
	matchLabel        = "miniserver.dev/match"
	modeAnnotation    = "miniserver.dev/mode"
	playersAnnotation = "miniserver.dev/players" // both user ids, separated by a comma
)

// Values of the enum GameServerState.
const (
	stateReady     = "READY"
	stateAllocated = "ALLOCATED"
)

// allocationRequest has the fields that we use of AllocationRequest, in allocation.proto
// of Agones 1.17 and later. The gateway ignores unknown names.
type allocationRequest struct {
	Namespace string     `json:"namespace"`
	Selectors []selector `json:"gameServerSelectors"` // the first that finds a server decides
	Metadata  metadata   `json:"metadata"`            // is put on the server
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
	State       string            `json:"gameServerState"`
}

type metadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Allocate returns the game server of a match: the one that is already allocated for it,
// or a ready one of the fleet, which is then allocated for it. The
// server finds the match's id in its label miniserver.dev/match, and the queue and
// the players in the annotations miniserver.dev/mode and miniserver.dev/players.
//
// It takes as long as ctx and Options.Timeout allow; Agones collects requests for
// half a second by default (allocationBatchWaitTime). After any error the same call may
// be repeated, but not at once, see the package's comment: if it was executed all the
// same, the next call finds its server. The error wraps
// matchmaking.ErrNoServer when no server is ready. Error texts are one line and hold
// no secret.
func (a *Allocator) Allocate(ctx context.Context, m matchmaking.Match) (matchmaking.Session, error) {
	session, err := a.allocate(ctx, m)
	if err != nil {
		return matchmaking.Session{}, failure{err}
	}
	return session, nil
}

func (a *Allocator) allocate(ctx context.Context, m matchmaking.Match) (matchmaking.Session, error) {
	body, err := a.request(m)
	if err != nil {
		return matchmaking.Session{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.endpoint, bytes.NewReader(body))
	if err != nil {
		return matchmaking.Session{}, errors.New("AGONES_URL cannot be used")
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "miniserver-agones")
	// Not through an http.Client, which would follow redirects.
	response, err := a.transport.RoundTrip(request)
	if err != nil {
		return matchmaking.Session{}, err
	}
	defer response.Body.Close()
	return judge(response)
}

func (a *Allocator) request(m matchmaking.Match) ([]byte, error) {
	if !labelValue.MatchString(m.ID) {
		return nil, fmt.Errorf("match id %.80q cannot be a label: 1 to 63 letters, digits and -_. inside", m.ID)
	}
	return json.Marshal(allocationRequest{
		Namespace: a.namespace,
		Selectors: []selector{
			{map[string]string{fleetLabel: a.fleet, matchLabel: m.ID}, stateAllocated},
			{map[string]string{fleetLabel: a.fleet}, stateReady},
		},
		Metadata: metadata{
			Labels: map[string]string{matchLabel: m.ID},
			Annotations: map[string]string{
				modeAnnotation:    m.Mode,
				playersAnnotation: m.Players[0].UserID + "," + m.Players[1].UserID,
			},
		},
	})
}

// failure is an error of Allocate. It may contain text of the other side, so its own text
// is one line of bounded length.
type failure struct{ err error }

const maxErrorBytes = 512

func (f failure) Error() string {
	text := "agones: " + f.err.Error()
	text = strings.ToValidUTF8(text[:min(len(text), maxErrorBytes)], "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// Unwrap returns the cause.
func (f failure) Unwrap() error { return f.err }
