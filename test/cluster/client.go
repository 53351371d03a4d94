package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/miniserversystem/miniserver/test/manifests"
)

// Refused is an error answer of the API server.
type Refused struct {
	Code    int
	Message string
}

func (r *Refused) Error() string { return fmt.Sprintf("%d: %s", r.Code, r.Message) }

// resource locates the objects of a kind.
type resource struct {
	Name       string `json:"name"`
	Kind       string `json:"kind"`
	Namespaced bool   `json:"namespaced"`
}

// do sends one request; an answer other than success is a [Refused].
func (c *Cluster) do(method, path, contentType string, body []byte) ([]byte, error) {
	request, err := http.NewRequest(method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.token)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		var status struct{ Message string }
		if json.Unmarshal(answer, &status) != nil || status.Message == "" {
			status.Message = string(answer)
		}
		return nil, &Refused{response.StatusCode, status.Message}
	}
	return answer, nil
}

// base returns the path of a group and version.
func base(apiVersion string) string {
	if strings.Contains(apiVersion, "/") {
		return "/apis/" + apiVersion
	}
	return "/api/" + apiVersion
}

// path returns an object's path; its kind is looked up once.
func (c *Cluster) path(apiVersion, kind, namespace, name string) (string, error) {
	c.looking.Lock()
	defer c.looking.Unlock()
	r, known := c.resources[apiVersion+" "+kind]
	if !known {
		answer, err := c.do(http.MethodGet, base(apiVersion), "", nil)
		if err != nil {
			return "", fmt.Errorf("%s %s: %w", apiVersion, kind, err)
		}
		var list struct{ Resources []resource }
		if err := json.Unmarshal(answer, &list); err != nil {
			return "", err
		}
		for _, one := range list.Resources {
			if !strings.Contains(one.Name, "/") {
				c.resources[apiVersion+" "+one.Kind] = one
			}
		}
		if r, known = c.resources[apiVersion+" "+kind]; !known {
			return "", fmt.Errorf("the API server has no %s %s", apiVersion, kind)
		}
	}
	path := base(apiVersion)
	if r.Namespaced && namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + r.Name
	if name != "" {
		path += "/" + name
	}
	return path, nil
}

// strictly makes an unknown or duplicate field an error.
const strictly = "?fieldManager=miniserver&fieldValidation=Strict"

// Apply applies a document as `kubectl apply --server-side` does; dry changes nothing.
func (c *Cluster) Apply(d *check.Document, dry bool) error {
	query := strictly + "&force=true"
	if dry {
		query += "&dryRun=All"
	}
	return c.send(http.MethodPatch, d, d.Name(), query, "application/apply-patch+yaml")
}

// Creatable requests a document's creation as a dry run, as `kubectl apply` does for a
// new one. An existing name is an error too, but is reported after those of the fields.
func (c *Cluster) Creatable(d *check.Document) error {
	return c.send(http.MethodPost, d, "", strictly+"&dryRun=All", "application/json")
}

func (c *Cluster) send(method string, d *check.Document, name, query, contentType string) error {
	path, err := c.path(d.Kind().GroupVersion().String(), d.Kind().Kind, d.Namespace(), name)
	if err != nil {
		return err
	}
	body, err := json.Marshal(d.Raw)
	if err != nil {
		return err
	}
	if _, err := c.do(method, path+query, contentType, body); err != nil {
		return fmt.Errorf("%s: %w", d, err)
	}
	return nil
}

// Get reads an object into value.
func (c *Cluster) Get(apiVersion, kind, namespace, name string, value any) error {
	path, err := c.path(apiVersion, kind, namespace, name)
	if err != nil {
		return err
	}
	answer, err := c.do(http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, value)
}

// List reads the objects of a kind in a namespace, "" for all of them.
func List[T any](c *Cluster, apiVersion, kind, namespace string) ([]T, error) {
	var list struct{ Items []T }
	err := c.Get(apiVersion, kind, namespace, "", &list)
	return list.Items, err
}
