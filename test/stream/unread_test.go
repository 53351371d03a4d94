package stream_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/system"
)

// openUnread opens a stream and reads only its beginning.
func openUnread(s *system.System, token string) {
	s.T.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	kit.Must(s.T, err)
	s.T.Cleanup(func() { conn.Close() })
	kit.Must(s.T, conn.(*net.TCPConn).SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", system.StreamPath, token)
	kit.Must(s.T, err)
	kit.Must(s.T, conn.SetReadDeadline(time.Now().Add(kit.Patience)))
	for begun, buffer := "", make([]byte, 256); !strings.Contains(begun, "retry:"); {
		n, err := conn.Read(buffer)
		kit.Must(s.T, err)
		begun += string(buffer[:n])
	}
}

// fill sends a user more than all buffers between sender and reader hold.
func fill(s *system.System, user string) (rows int) {
	s.T.Helper()
	const bytes = 10_000
	rows = 800
	_, err := s.Pool.Exec(s.T.Context(), `
		INSERT INTO notification.notifications (notification_id, event_id, user_id, event_type, payload, occurred_at, status, attempt_count, finished_at)
		SELECT gen_random_uuid(), gen_random_uuid(), $1, 'EntitlementGranted', jsonb_build_object('x', repeat('x', $3)), now(), 'SENT', 1, now() - i * interval '1 ms'
		FROM generate_series(1, $2) i`, user, rows, bytes)
	kit.Must(s.T, err)
	return rows
}

// A client that does not read is cut off, and holds up neither the other streams nor the
// end of the process.
func TestStreamThatNobodyReads(t *testing.T) {
	t.Parallel()
	names := []string{"one process", "across processes"}
	systems, stops := map[string]*system.System{}, map[string]func() error{}
	for _, name := range names {
		s, people := system.StartWithPeople(t, "WAKES=false", "SHUTDOWN_GRACE=1s")
		systems[name], stops[name] = s, s.Served()
		if name != names[0] {
			stops[name], _ = s.Apart()
		}
		alice := people.Player(t, "alice")
		user := s.UserID(alice)
		openUnread(s, alice)
		f := s.Follow(alice)
		rows := fill(s, user)
		s.Grant("k1", user, "item1")
		s.DeliverAll()
		f.Until(rows + 1)
		f.HangUp()
	}
	for _, name := range names {
		kit.Within(t, 15*time.Second, name+": the clients that do not read are cut off", func() bool {
			systems[name].Age(time.Second) // a write may take 10 s at most
			return strings.Count(systems[name].Log.String(), `"route":"GET /v1/me/notifications/stream"`) == 2
		})
		if err := stops[name](); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
