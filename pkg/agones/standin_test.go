package agones_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"

	"github.com/miniserversystem/miniserver/infra/dev/proc"
)

// gameServer is a game server of a fleet.
type gameServer struct {
	Name, Namespace, State string
	Labels, Annotations    map[string]string
}

// standIn is an allocator service with game servers in memory. It behaves as
// proto/allocation/allocation.proto and pkg/gameserverallocations of Agones do.
type standIn struct {
	*httptest.Server
	mutex      sync.Mutex
	servers    []*gameServer
	contention int // how many of the next calls are answered with Contention
	calls      int
	around     around
}

// around handles a request, and may pass it on.
type around func(w http.ResponseWriter, r *http.Request, on http.HandlerFunc)

// newStandIn serves with TLS and HTTP/2 if config is not nil. It panics on an error, so
// that examples can use it.
func newStandIn(config *tls.Config) *standIn {
	s := &standIn{}
	s.Server = &httptest.Server{Listener: listener(), Config: &http.Server{Handler: s}, EnableHTTP2: true}
	if config == nil {
		s.Start()
		return s
	}
	s.TLS = config
	s.StartTLS()
	return s
}

func listener() net.Listener {
	for range 20 {
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(freePort()))
		if err == nil {
			return l
		}
	}
	panic("no free port")
}

func freePort() int {
	port, err := proc.FreePort(0)
	if err != nil {
		panic(err)
	}
	return port
}

// fleet adds n ready game servers.
func (s *standIn) fleet(namespace, name string, n int) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for i := range n {
		s.servers = append(s.servers, &gameServer{
			Name: fmt.Sprintf("%s-%d", name, i), Namespace: namespace, State: "READY",
			Labels: map[string]string{"agones.dev/fleet": name},
		})
	}
}

// allocated returns the game servers in use.
func (s *standIn) allocated() (list []gameServer) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, g := range s.servers {
		if g.State == "ALLOCATED" {
			list = append(list, gameServer{g.Name, g.Namespace, g.State, maps.Clone(g.Labels), maps.Clone(g.Annotations)})
		}
	}
	return list
}

// wrap lets handle answer requests from now on; nil ends that.
func (s *standIn) wrap(handle around) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.around = handle
}

func (s *standIn) called() int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.calls
}

func (s *standIn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mutex.Lock()
	s.calls++
	handle := s.around
	s.mutex.Unlock()
	if handle != nil {
		handle(w, r, s.serve)
		return
	}
	s.serve(w, r)
}

func (s *standIn) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path != "/gameserverallocation":
		refuse(w, http.StatusNotFound, 5, "Not Found")
		return
	case r.Method != http.MethodPost:
		refuse(w, http.StatusNotImplemented, 12, "Method Not Allowed")
		return
	case r.Header.Get("Content-Type") != "application/json":
		refuse(w, http.StatusBadRequest, 3, "content type "+r.Header.Get("Content-Type"))
		return
	}
	request, err := readRequest(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, 3, err.Error())
		return
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.contention > 0 {
		s.contention--
		refuse(w, http.StatusConflict, 10, "too many concurrent requests have overwhelmed the system")
		return
	}
	patch := request.Metadata
	if patch == nil {
		patch = &metaPatch{}
	}
	for _, one := range request.GameServerSelectors {
		if !legalLabels(one.MatchLabels) || !legalLabels(patch.Labels) {
			refuse(w, http.StatusInternalServerError, 422, "GameServerAllocation is invalid")
			return
		}
	}
	found := s.find(request)
	if found == nil {
		refuse(w, http.StatusTooManyRequests, 8, "there is no available GameServer to allocate")
		return
	}
	found.State = "ALLOCATED"
	found.Labels = merge(found.Labels, patch.Labels)
	found.Annotations = merge(found.Annotations, patch.Annotations)
	answer(w, http.StatusOK, allocationResponse{
		GameServerName: found.Name, Ports: []port{{"game", 7203}, {"voice", 7204}}, Address: "203.0.113.7", Addresses: []any{},
		NodeName: "node-1", Source: "local", Metadata: &metaPatch{Labels: found.Labels, Annotations: found.Annotations},
	})
}

// find returns a server for the first selector that matches one (find.go of Agones).
func (s *standIn) find(request allocationRequest) *gameServer {
	selectors := request.GameServerSelectors
	if len(selectors) == 0 {
		selectors = []selector{{}}
	}
	for _, one := range selectors {
		i := slices.IndexFunc(s.servers, func(g *gameServer) bool {
			state := one.GameServerState
			if state == "" {
				state = "READY"
			}
			for key, value := range one.MatchLabels {
				if has, ok := g.Labels[key]; !ok || has != value {
					return false
				}
			}
			return g.State == state && g.Namespace == request.Namespace
		})
		if i >= 0 {
			return s.servers[i]
		}
	}
	return nil
}

func merge(into, from map[string]string) map[string]string {
	result := maps.Clone(into)
	if result == nil {
		result = map[string]string{}
	}
	maps.Copy(result, from)
	return result
}

func refuse(w http.ResponseWriter, code, grpc int, message string) {
	answer(w, code, status{grpc, message, []any{}})
}

func answer(w http.ResponseWriter, code int, body any) {
	content, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(content)
}
