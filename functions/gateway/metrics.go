package gateway

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/limit"
)

// metrics count sessions and refused requests. Requests themselves are counted for every
// function alike (http.server.request.duration).
type metrics struct {
	sessions metric.Int64Counter
	refused  metric.Int64Counter
}

func newMetrics(e *fn.Env) (metrics, error) {
	meter, err := e.Meter("gateway")
	if err != nil {
		return metrics{}, err
	}
	sessions, errSessions := meter.Int64Counter("session.events", metric.WithUnit("{session}"),
		metric.WithDescription("Browser sessions, by event: opened, renewed, renewal_failed, revoked (by the issuer, seen at a renewal), ended (a sign-out, here or at the issuer)."))
	refused, errRefused := meter.Int64Counter("limit.refused", metric.WithUnit("{request}"),
		metric.WithDescription("Requests answered 429, by policy: player, service, anonymous, sign-in, or the route with a quota of its own."))
	return metrics{sessions, refused}, errors.Join(errSessions, errRefused)
}

func (m metrics) session(ctx context.Context, event string, n int) {
	if n > 0 {
		m.sessions.Add(ctx, int64(n), metric.WithAttributes(attribute.String("event", event)))
	}
}

func (m metrics) limited(ctx context.Context, policy string, result limit.Result) {
	if !result.Allowed {
		m.refused.Add(ctx, 1, metric.WithAttributes(attribute.String("policy", policy)))
	}
}
