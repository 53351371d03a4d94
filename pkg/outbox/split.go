package outbox

import (
	"context"
	"sync"

	"github.com/miniserversystem/miniserver/pkg/event"
)

// Split publishes the messages of one subject at a broker of their own, and all
// others elsewhere. It is ready when both are: a relay claims events of any subject.
type Split struct {
	Subject string
	Own     Publisher
	Others  Publisher
}

// Ready asks both.
func (s Split) Ready(ctx context.Context) error {
	if err := s.Own.Ready(ctx); err != nil {
		return err
	}
	return s.Others.Ready(ctx)
}

// Publish sends both parts side by side.
func (s Split) Publish(ctx context.Context, messages []event.Message) []error {
	results := make([]error, len(messages))
	var parts sync.WaitGroup
	for publisher, mine := range map[Publisher]bool{s.Own: true, s.Others: false} {
		var part []event.Message
		var at []int
		for i, m := range messages {
			if (m.Subject == s.Subject) == mine {
				part, at = append(part, m), append(at, i)
			}
		}
		if len(part) > 0 {
			parts.Go(func() {
				for i, err := range publisher.Publish(ctx, part) {
					results[at[i]] = err
				}
			})
		}
	}
	parts.Wait()
	return results
}
