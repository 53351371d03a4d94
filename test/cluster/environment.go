package cluster

import (
	"errors"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
)

// Environment returns the environment that kubelet would start a container with: its
// variables, and those of the ConfigMaps and Secrets that it names, from the API server.
func (c *Cluster) Environment(namespace string, container corev1.Container) (map[string]string, error) {
	values := map[string]string{}
	for _, from := range container.EnvFrom {
		if from.ConfigMapRef == nil {
			return nil, fmt.Errorf("%s: envFrom of something else than a ConfigMap", container.Name)
		}
		var config corev1.ConfigMap
		if err := c.Get("v1", "ConfigMap", namespace, from.ConfigMapRef.Name, &config); err != nil {
			return nil, err
		}
		for name, value := range config.Data {
			values[name] = value
		}
	}
	for _, e := range container.Env {
		switch {
		case e.ValueFrom == nil:
			values[e.Name] = e.Value
		case e.ValueFrom.SecretKeyRef != nil:
			ref := e.ValueFrom.SecretKeyRef
			var secret corev1.Secret
			err := c.Get("v1", "Secret", namespace, ref.Name, &secret)
			var refused *Refused
			missing := errors.As(err, &refused) && refused.Code == http.StatusNotFound
			if err != nil && !missing {
				return nil, err
			}
			value, ok := secret.Data[ref.Key]
			switch {
			case ok:
				values[e.Name] = string(value)
			case ref.Optional == nil || !*ref.Optional:
				return nil, fmt.Errorf("%s: there is no %s in the Secret %s", e.Name, ref.Key, ref.Name)
			}
		default:
			return nil, fmt.Errorf("%s: %s comes from something else than a Secret", container.Name, e.Name)
		}
	}
	return values, nil
}
