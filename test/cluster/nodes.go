package cluster

import (
	"testing"
	"time"
)

// object holds the fields of an object that this file reads.
type object struct {
	Metadata struct {
		Name, Namespace string
		Generation      int64
	}
	Status struct{ ObservedGeneration int64 }
}

// Pretend writes, until the test ends, the statuses of the cluster's parts that are not
// here: that Deployments have their pods (kubelet, scheduler, Kubernetes' own
// controllers), that Knative's autoscaler is satisfied, and that its ingress has
// programmed its gateway. It writes nothing but statuses.
func (c *Cluster) Pretend(t testing.TB) {
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		for {
			// A failed write is repeated in the next round; tests wait for the outcome.
			_ = c.pretend("apps/v1", "Deployment", func(o object) map[string]any {
				return map[string]any{
					"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
					"conditions": conditions("Available", "Progressing"),
				}
			})
			_ = c.pretend("autoscaling.internal.knative.dev/v1alpha1", "PodAutoscaler", func(o object) map[string]any {
				return map[string]any{
					"serviceName": o.Metadata.Name, "metricsServiceName": o.Metadata.Name + "-private",
					"desiredScale": 1, "actualScale": 1,
					"conditions": conditions("Active", "Ready", "SKSReady", "ScaleTargetInitialized"),
				}
			})
			_ = c.pretend("networking.internal.knative.dev/v1alpha1", "Ingress", func(o object) map[string]any {
				gateway := map[string]any{"ingress": []any{map[string]any{"domainInternal": "kourier-internal.kourier-system.svc.cluster.local"}}}
				return map[string]any{
					"publicLoadBalancer": gateway, "privateLoadBalancer": gateway,
					"conditions": conditions("LoadBalancerReady", "NetworkConfigured", "Ready"),
				}
			})
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
}

// pretend writes the status of all objects of a kind whose status is outdated.
func (c *Cluster) pretend(apiVersion, kind string, status func(object) map[string]any) error {
	all, err := List[object](c, apiVersion, kind, "")
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.Status.ObservedGeneration == o.Metadata.Generation {
			continue
		}
		s := status(o)
		s["observedGeneration"] = o.Metadata.Generation
		if err := c.patch(apiVersion, kind, o.Metadata.Namespace, o.Metadata.Name, s); err != nil {
			return err
		}
	}
	return nil
}

func conditions(types ...string) []any {
	var all []any
	for _, t := range types {
		all = append(all, map[string]any{
			"type": t, "status": "True", "reason": "Pretended",
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		})
	}
	return all
}
