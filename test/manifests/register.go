package check

import (
	"strconv"
	"time"

	"github.com/robfig/cron/v3"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"
	"knative.dev/serving/pkg/apis/autoscaling"
	servingv1 "knative.dev/serving/pkg/apis/serving/v1"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/fn/tick"
)

const visibility = "networking.knative.dev/visibility"

// register compares Services and PingSources with the registry: each function is there as
// registered, and nothing else.
func register(b *Build, p *problems) {
	services := map[string]*servingv1.Service{}
	for _, s := range all[servingv1.Service](b) {
		services[s.Name] = s
		if _, err := functions.Named(s.Name); err != nil {
			p.add("Service %s: no such function is in the registry", s.Name)
		}
	}
	sources := map[string]*sourcesv1.PingSource{}
	for _, s := range all[sourcesv1.PingSource](b) {
		sources[s.Name] = s
		if f, err := functions.Named(s.Name); err != nil || f.Schedule == 0 {
			p.add("PingSource %s: no such function has a schedule", s.Name)
		}
	}
	for _, f := range functions.All {
		if s := services[f.Name]; s == nil {
			p.add("function %s has no Service", f.Name)
		} else {
			asRegistered(f, s, p)
		}
		if s := sources[f.Name]; f.Schedule > 0 && s == nil {
			p.add("function %s has a schedule and no PingSource", f.Name)
		} else if s != nil {
			ticks(f, s, p)
		}
	}
}

func asRegistered(f fn.Function, s *servingv1.Service, p *problems) {
	spec := s.Spec.Template.Spec
	if spec.TimeoutSeconds == nil || time.Duration(*spec.TimeoutSeconds)*time.Second != f.Timeout {
		p.add("Service %s: timeoutSeconds is not the registry's %s", s.Name, f.Timeout)
	}
	if spec.ContainerConcurrency == nil || *spec.ContainerConcurrency != int64(f.Concurrency) {
		p.add("Service %s: containerConcurrency is not the registry's %d", s.Name, f.Concurrency)
	}
	if local := s.Labels[visibility] == "cluster-local"; local == f.Public {
		p.add("Service %s: cluster-local is %t, and the registry says that public is %t", s.Name, local, f.Public)
	}
	scale := func(key string) int {
		n, err := strconv.Atoi(s.Spec.Template.Annotations[key])
		if err != nil {
			p.add("Service %s: %s is not set", s.Name, key)
		}
		return n
	}
	least, most := scale(autoscaling.MinScaleAnnotationKey), scale(autoscaling.MaxScaleAnnotationKey)
	if least < f.MinScale {
		p.add("Service %s: min-scale %d is below the registry's %d", s.Name, least, f.MinScale)
	}
	// More pods than the registry's one would only wait for each other.
	if most < 1 || f.MaxScale == 1 && most != 1 {
		p.add("Service %s: max-scale is %d, the registry's is %d", s.Name, most, f.MaxScale)
	}
	for _, c := range spec.Containers {
		for _, probe := range []struct{ is, want string }{
			{probePath(c.ReadinessProbe), fn.ReadinessPath}, {probePath(c.LivenessProbe), fn.LivenessPath},
		} {
			if probe.is != probe.want {
				p.add("Service %s: a probe asks %q, not %s", s.Name, probe.is, probe.want)
			}
		}
	}
}

// ticks checks a PingSource's sink and schedule, with Knative's own parser.
func ticks(f fn.Function, s *sourcesv1.PingSource, p *problems) {
	if ref := s.Spec.Sink.Ref; ref == nil || ref.Name != f.Name {
		p.add("PingSource %s ticks somebody else", s.Name)
	}
	if uri := s.Spec.Sink.URI; uri == nil || uri.Path != tick.Path {
		p.add("PingSource %s does not go to %s", s.Name, tick.Path)
	}
	schedule, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(s.Spec.Schedule)
	if err != nil {
		return // the webhook's validation reports it
	}
	// Two hours of ticks, which reveal a step that does not divide its minute.
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for end := at.Add(2 * time.Hour); at.Before(end); {
		next := schedule.Next(at)
		if next.Sub(at) != f.Schedule {
			p.add("PingSource %s ticks every %s, the registry says %s", s.Name, next.Sub(at), f.Schedule)
			return
		}
		at = next
	}
}
