package check

import (
	"context"
	"strings"

	messagingv1 "knative.dev/eventing/pkg/apis/messaging/v1"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"
	"knative.dev/pkg/apis"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"
)

// admitted is an object that Knative's webhooks default and validate.
type admitted interface {
	apis.Defaultable
	apis.Validatable
}

// admit sets defaults and validates like the webhooks of Knative's default configuration
// when an object is created. Its max-revision-timeout is 600 s.
func admit(b *Build, p *problems) {
	for _, d := range b.Documents {
		ctx := apis.WithinCreate(context.Background())
		switch object := d.Object.(type) {
		case *servingv1.Service, *sourcesv1.PingSource, *messagingv1.Subscription:
			knative := object.(admitted)
			knative.SetDefaults(ctx)
			if err := knative.Validate(ctx).Filter(apis.ErrorLevel); err != nil {
				p.add("%s: %w", d, err)
			}
			if ping, ok := object.(*sourcesv1.PingSource); ok && len(strings.Fields(ping.Spec.Schedule)) != 6 {
				p.add("%s: its schedule %q has not six fields, the first of which is seconds", d, ping.Spec.Schedule)
			}
		case *JetStreamChannel:
			object.validate(p)
		}
	}
}
