package system

import (
	"net/http"
	"sync/atomic"
)

// StandIn is in front of a function, and lets a test answer in its place.
type StandIn struct {
	Function http.Handler
	instead  atomic.Pointer[http.HandlerFunc]
}

func (p *StandIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if instead := p.instead.Load(); instead != nil {
		(*instead)(w, r)
		return
	}
	p.Function.ServeHTTP(w, r)
}

// Answers lets instead answer from now on.
func (p *StandIn) Answers(instead http.HandlerFunc) { p.instead.Store(&instead) }

// Recovers lets the function answer again.
func (p *StandIn) Recovers() { p.instead.Store(nil) }

// StandIn puts one in front of a function, as a platform's proxy is; call it before the
// first request.
func (s *System) StandIn(function string) *StandIn {
	local := s.Runtime.Here
	p := &StandIn{Function: local[function]}
	local[function] = p
	s.Runtime.Invoke = away{local} // functions of this process have no proxy before them
	return p
}

// away reaches functions as if they were in other processes.
type away struct{ http.RoundTripper }
