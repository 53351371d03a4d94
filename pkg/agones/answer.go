package agones

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"

	"github.com/miniserversystem/miniserver/pkg/matchmaking"
)

// maxAnswerBytes bounds an answer. Agones' has about 1 KiB, more if game servers have
// many annotations.
const maxAnswerBytes = 64 << 10

// allocationResponse has the fields that we use of AllocationResponse, allocation.proto
// of Agones. The gateway writes all fields, empty ones too (NewServerMux in
// pkg/util/runtime/runtime.go).
type allocationResponse struct {
	GameServerName *string `json:"gameServerName"`
	Address        string  `json:"address"`
	Ports          []struct {
		Name string `json:"name"`
		Port int32  `json:"port"`
	} `json:"ports"`
}

// status is the body of an error: google.rpc.Status, from DefaultHTTPErrorHandler of
// grpc-gateway v2, which has the HTTP status for each code, too.
type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Codes of gRPC that the allocator returns on purpose (convertStateV1ToError in
// pkg/allocation/converters/converter.go).
const (
	resourceExhausted = 8  // UnAllocated, as 429
	aborted           = 10 // Contention, as 409
)

// unallocated is the message of UnAllocated. Since 1.41 the operator of Agones may
// choose its status, from a list that has 200 and 503 (http-unallocated-status-code in
// cmd/allocator/main.go), so the code alone is not enough.
const unallocated = "there is no available GameServer to allocate"

func judge(response *http.Response) (matchmaking.Session, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	switch {
	case err != nil:
		return matchmaking.Session{}, fmt.Errorf("the answer (status %d) broke off: %w", response.StatusCode, err)
	case len(body) > maxAnswerBytes:
		return matchmaking.Session{}, fmt.Errorf("the answer (status %d) exceeds %d bytes", response.StatusCode, maxAnswerBytes)
	case response.StatusCode != http.StatusOK:
		return matchmaking.Session{}, refusal(response.StatusCode, body)
	}
	return sessionOf(body)
}

func sessionOf(body []byte) (matchmaking.Session, error) {
	var answer allocationResponse
	if err := json.Unmarshal(body, &answer); err != nil || answer.GameServerName == nil {
		return matchmaking.Session{}, errors.New("the answer is not an AllocationResponse; check AGONES_URL")
	}
	session := matchmaking.Session{Server: *answer.GameServerName, Address: answer.Address}
	for _, p := range answer.Ports {
		if p.Port < 1 || p.Port > math.MaxUint16 {
			return matchmaking.Session{}, fmt.Errorf("game server %.80q has port %d", session.Server, p.Port)
		}
		session.Ports = append(session.Ports, matchmaking.Port(p))
	}
	switch {
	case session.Server == "" && session.Address == "" && session.Ports == nil:
		// UnAllocated with the status 200 is a success without a response.
		return matchmaking.Session{}, matchmaking.ErrNoServer
	case session.Server == "" || session.Address == "" || session.Ports == nil:
		return matchmaking.Session{}, fmt.Errorf("game server %.80q (address %.80q) lacks a name, an address or ports; players need all of them", session.Server, session.Address)
	}
	return session, nil
}

func refusal(code int, body []byte) error {
	var s status
	if err := json.Unmarshal(body, &s); err != nil || s.Code == 0 {
		// Not from Agones: a redirect, or a proxy's answer.
		return fmt.Errorf("answered %d", code)
	}
	switch {
	case s.Code == resourceExhausted || s.Message == unallocated:
		return fmt.Errorf("%w (answered %d)", matchmaking.ErrNoServer, code)
	case s.Code == aborted:
		return fmt.Errorf("answered %d: too many allocate at once", code)
	}
	return fmt.Errorf("answered %d, code %d: %.200q", code, s.Code, s.Message)
}
