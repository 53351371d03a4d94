package check_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/miniserversystem/miniserver/pkg/event"
	ours "github.com/miniserversystem/miniserver/pkg/jetstream"
	"github.com/miniserversystem/miniserver/test/kit"
	"github.com/miniserversystem/miniserver/test/manifests"
)

// On a real broker, the channels' streams get each event that their subscriber wants, in
// whichever order streams are created, and deleting them leaves ours unchanged.
func TestChannelStreams(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"ours", "theirs"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			url := kit.NATS(t).URL()
			conn, err := nats.Connect(url)
			kit.Must(t, err)
			defer conn.Close()
			js, err := jetstream.New(conn)
			kit.Must(t, err)
			steps := []func(){
				func() {
					client := ours.New(url, "test", ours.Limits{MaxBytes: -1, MaxAge: time.Hour, Replicas: 1})
					defer client.Close()
					for _, subject := range event.Subjects {
						kit.Must(t, ours.NewPublisher(client, subject).Ready(t.Context()))
					}
				},
				func() { wakes(t, js) },
			}
			if first == "theirs" {
				steps[0], steps[1] = steps[1], steps[0]
			}
			steps[0]()
			steps[1]()
			for _, subject := range event.Subjects {
				_, err := js.Publish(t.Context(), subject, []byte("event"))
				kit.Must(t, err)
			}
			// The subjects of which users are notified, and transfers to settle.
			holds(t, js, "WAKE_NOTIFY", uint64(len(event.ForPeople)))
			holds(t, js, "WAKE_SETTLE", 1)
			kit.Must(t, js.DeleteStream(t.Context(), "WAKE_NOTIFY"))
			kit.Must(t, js.DeleteStream(t.Context(), "WAKE_SETTLE"))
			for _, subject := range event.Subjects {
				holds(t, js, ours.StreamName(subject), 1)
			}
		})
	}
}

// wakes creates the streams of base's channels, as their dispatcher does: with a subject
// of the channel's own.
func wakes(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	b := build(t, "overlays/kind")
	check.Check(b)
	made := 0
	for _, d := range b.Documents {
		channel, ok := d.Object.(*check.JetStreamChannel)
		if !ok {
			continue
		}
		made++
		spec := channel.Spec.Stream
		config := jetstream.StreamConfig{
			Name: spec.OverrideName, Subjects: []string{"KNATIVE." + channel.Name}, Retention: jetstream.LimitsPolicy,
			Discard: jetstream.DiscardOld, Storage: jetstream.MemoryStorage, MaxMsgs: spec.Config.MaxMsgs, MaxAge: spec.Config.MaxAge.Duration,
			Duplicates: spec.Config.MaxAge.Duration, Replicas: 1,
		}
		for _, source := range spec.Config.Sources {
			config.Sources = append(config.Sources, &jetstream.StreamSource{Name: source.Name})
		}
		_, err := js.CreateStream(t.Context(), config)
		kit.Must(t, err)
	}
	if made != 2 {
		t.Fatalf("base has %d channels, want 2", made)
	}
}

// holds waits until a stream holds this many messages.
func holds(t testing.TB, js jetstream.JetStream, name string, want uint64) {
	t.Helper()
	var got uint64
	if !kit.Soon(func() bool {
		stream, err := js.Stream(t.Context(), name)
		kit.Must(t, err)
		info, err := stream.Info(t.Context())
		kit.Must(t, err)
		got = info.State.Msgs
		return got == want
	}) {
		t.Errorf("%s holds %d messages, want %d", name, got, want)
	}
}
