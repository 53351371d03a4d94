package agones_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"regexp"
)

// The messages of allocation.proto in JSON, with all fields.

type allocationRequest struct {
	Namespace                    string         `json:"namespace,omitempty"`
	MultiClusterSetting          any            `json:"multiClusterSetting,omitempty"`
	RequiredGameServerSelector   *selector      `json:"requiredGameServerSelector,omitempty"`
	PreferredGameServerSelectors []selector     `json:"preferredGameServerSelectors,omitempty"`
	Scheduling                   string         `json:"scheduling,omitempty"`
	MetaPatch                    *metaPatch     `json:"metaPatch,omitempty"`
	Metadata                     *metaPatch     `json:"metadata,omitempty"`
	GameServerSelectors          []selector     `json:"gameServerSelectors,omitempty"`
	Priorities                   []any          `json:"priorities,omitempty"`
	Counters                     map[string]any `json:"counters,omitempty"`
	Lists                        map[string]any `json:"lists,omitempty"`
}

type selector struct {
	MatchLabels     map[string]string `json:"matchLabels,omitempty"`
	GameServerState string            `json:"gameServerState,omitempty"`
	Players         any               `json:"players,omitempty"`
	Counters        map[string]any    `json:"counters,omitempty"`
	Lists           map[string]any    `json:"lists,omitempty"`
}

type metaPatch struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// allocationResponse has no omitempty: the gateway writes empty fields, too.
type allocationResponse struct {
	GameServerName string     `json:"gameServerName"`
	Ports          []port     `json:"ports"`
	Address        string     `json:"address"`
	Addresses      []any      `json:"addresses"`
	NodeName       string     `json:"nodeName"`
	Source         string     `json:"source"`
	Metadata       *metaPatch `json:"metadata"`
	Counters       struct{}   `json:"counters"`
	Lists          struct{}   `json:"lists"`
}

type port struct {
	Name string `json:"name"`
	Port int32  `json:"port"`
}

type status struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Details []any  `json:"details"`
}

// readRequest refuses what the proto does not have: other names, names in another
// case (which encoding/json would take and the gateway would skip), other enum values.
func readRequest(body io.Reader) (r allocationRequest, err error) {
	content, err := io.ReadAll(body)
	if err != nil {
		return r, err
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil {
		return r, err
	}
	again, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	var sent, understood any
	if err := errors.Join(json.Unmarshal(content, &sent), json.Unmarshal(again, &understood)); err != nil {
		return r, err
	}
	if !reflect.DeepEqual(sent, understood) {
		return r, errors.New("sent " + string(content) + ", understood " + string(again))
	}
	for _, s := range r.GameServerSelectors {
		if s.GameServerState != "" && s.GameServerState != "READY" && s.GameServerState != "ALLOCATED" {
			return r, errors.New("no such GameServerState: " + s.GameServerState)
		}
	}
	return r, nil
}

// Kubernetes' rules for labels, of which a value may be empty.
var (
	labelKey   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$`)
)

func legalLabels(labels map[string]string) bool {
	for key, value := range labels {
		if !labelKey.MatchString(key) || !labelValue.MatchString(value) {
			return false
		}
	}
	return true
}
