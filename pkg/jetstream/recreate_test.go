package jetstream_test

import (
	"testing"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/test/kit"
)

// NATS answers a delete before the stream's files are gone; the next publisher must not be
// refused because of that.
func TestDeletedStreamIsMadeAgainAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	for range 40 {
		batch := make([]event.Message, 200)
		for i := range batch {
			batch[i] = message("u_1/item1")
		}
		f.publish(batch...)
		kit.Must(t, f.js.DeleteStream(t.Context(), streamName))
		client := jetstream.New(f.nats.URL(), "another", limits)
		err := jetstream.NewPublisher(client, event.EntitlementSubject).Ready(t.Context())
		client.Close()
		kit.Must(t, err)
	}
}
