package check

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/miniserversystem/miniserver/pkg/event"
	"github.com/miniserversystem/miniserver/pkg/jetstream"
)

var jetStreamChannelKind = schema.GroupVersionKind{Group: "messaging.knative.dev", Version: "v1alpha1", Kind: "NatsJetStreamChannel"}

// JetStreamChannel has the fields of eventing-natss' NatsJetStreamChannel that we use, as
// this module cannot depend on its module. Other fields are unknown.
type JetStreamChannel struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Stream struct {
			OverrideName string `json:"overrideName"`
			Config       struct {
				Sources []struct {
					Name string `json:"name"`
				} `json:"sources"`
				Retention string          `json:"retention"`
				Discard   string          `json:"discard"`
				Storage   string          `json:"storage"`
				MaxMsgs   int64           `json:"maxMsgs"`
				MaxAge    metav1.Duration `json:"maxAge"`
			} `json:"config"`
		} `json:"stream"`
		ConsumerConfigTemplate struct {
			DeliverPolicy string          `json:"deliverPolicy"`
			ReplayPolicy  string          `json:"replayPolicy"`
			AckWait       metav1.Duration `json:"ackWait"`
			MaxDeliver    int             `json:"maxDeliver"`
		} `json:"consumerConfigTemplate"`
	} `json:"spec"`
}

// validate checks a channel against its custom resource's enumerations, and that it is
// harmless: its stream must be a short copy of ours and never ours, since it is deleted
// with the channel.
func (c *JetStreamChannel) validate(p *problems) {
	stream, config, consumer := c.Spec.Stream, c.Spec.Stream.Config, c.Spec.ConsumerConfigTemplate
	one := func(field, value string, of ...string) {
		if !slices.Contains(of, value) {
			p.add("NatsJetStreamChannel %s: %s is %q, not one of %q", c.Name, field, value, of)
		}
	}
	one("spec.stream.config.retention", config.Retention, "Limits", "Interest", "Work")
	one("spec.stream.config.discard", config.Discard, "Old")
	one("spec.stream.config.storage", config.Storage, "File", "Memory")
	one("spec.consumerConfigTemplate.deliverPolicy", consumer.DeliverPolicy, "All", "Last", "New")
	one("spec.consumerConfigTemplate.replayPolicy", consumer.ReplayPolicy, "Instant", "Original")
	if config.MaxMsgs <= 0 || config.MaxAge.Duration <= 0 || config.MaxAge.Duration > time.Hour || consumer.AckWait.Duration <= 0 || consumer.MaxDeliver <= 0 {
		p.add("NatsJetStreamChannel %s: its stream and consumer must be bounded", c.Name)
	}
	var ours []string
	for _, subject := range event.Subjects {
		ours = append(ours, jetstream.StreamName(subject))
	}
	if stream.OverrideName == "" || slices.Contains(ours, stream.OverrideName) {
		p.add("NatsJetStreamChannel %s: its stream would be %q; with the channel a stream of ours would be deleted", c.Name, stream.OverrideName)
	}
	if len(config.Sources) == 0 {
		p.add("NatsJetStreamChannel %s has no source", c.Name)
	}
	for _, source := range config.Sources {
		one("spec.stream.config.sources", source.Name, ours...)
	}
}
