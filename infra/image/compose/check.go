package compose

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// data is where the images of servers keep what must survive the container.
var data = map[string]string{
	"postgres":   "/var/lib/postgresql/data",
	"redis":      "/data",
	"nats":       "/data",
	"rabbitmq":   "/var/lib/rabbitmq",
	"keycloak":   "/opt/keycloak/data",
	"prometheus": "/prometheus",
}

// bare is a service whose image has one program, which cannot ask for its health.
const bare = "collector"

// minor matches a version of at least two numbers: one number alone is another server
// tomorrow.
var minor = regexp.MustCompile(`:v?[0-9]+\.[0-9]+[A-Za-z0-9_.-]*$|@sha256:[0-9a-f]{64}$`)

// Check returns what is wrong with the project, a line each.
func Check(project *types.Project) []string {
	c := checker{project: project, published: map[string]string{}}
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range project.Services {
			if !yield(name) {
				return
			}
		}
	}) {
		service := project.Services[name]
		c.image(service)
		c.health(service)
		c.ports(service)
		c.volumes(service)
		c.order(service)
		if service.Build != nil {
			c.ours(service)
		}
	}
	for name := range data {
		if _, found := project.Services[name]; !found {
			c.add("there is no service %s, which settings know", name)
		}
	}
	slices.Sort(c.problems)
	return c.problems
}

type checker struct {
	project   *types.Project
	published map[string]string // host:port → service
	problems  []string
}

func (c *checker) add(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// image checks that an image that is not built here is pinned.
func (c *checker) image(s types.ServiceConfig) {
	if s.Build == nil {
		if !minor.MatchString(s.Image) {
			c.add("%s: the image %q is not pinned to a version", s.Name, s.Image)
		}
		return
	}
	if s.PullPolicy != types.PullPolicyBuild {
		c.add("%s: what is built here would be pulled (pull_policy)", s.Name)
	}
	if _, err := os.Stat(s.Build.Context + "/" + s.Build.Dockerfile); err != nil {
		c.add("%s: its Dockerfile: %v", s.Name, err)
	}
}

// health checks that every service that keeps running has a health check.
func (c *checker) health(s types.ServiceConfig) {
	if c.ends(s.Name) || s.Name == bare {
		return
	}
	check := s.HealthCheck
	if check == nil || check.Disable || len(check.Test) < 2 {
		c.add("%s has no healthcheck", s.Name)
		return
	}
	if check.Interval == nil || check.Timeout == nil || check.Retries == nil {
		c.add("%s: its healthcheck leaves interval, timeout or retries to the engine", s.Name)
	}
	if s.Build != nil && check.Test[0] != "CMD" {
		c.add("%s: its image has no shell for its healthcheck", s.Name)
	}
}

// ends reports whether others wait for the service to end.
func (c *checker) ends(name string) bool {
	for _, other := range c.project.Services {
		if other.DependsOn[name].Condition == types.ServiceConditionCompletedSuccessfully {
			return true
		}
	}
	return false
}

// ports checks that ports are reachable from this machine only, and not published twice.
func (c *checker) ports(s types.ServiceConfig) {
	for _, port := range s.Ports {
		if ip, err := netip.ParseAddr(port.HostIP); err != nil || !ip.IsLoopback() {
			c.add("%s: port %d is published on %q, which is not loopback only", s.Name, port.Target, port.HostIP)
		}
		where := port.HostIP + ":" + port.Published
		if other := c.published[where]; other != "" {
			c.add("%s and %s are both at %s", other, s.Name, where)
		}
		c.published[where] = s.Name
	}
	if s.NetworkMode != "" || s.Privileged {
		c.add("%s: it has the host's network or rights", s.Name)
	}
}

// volumes checks that data that must survive is in a volume, and that bound files exist.
func (c *checker) volumes(s types.ServiceConfig) {
	kept := data[s.Name]
	for _, volume := range s.Volumes {
		switch {
		case volume.Type == types.VolumeTypeVolume && volume.Target == kept && volume.Source != "":
			kept = ""
		case volume.Type == types.VolumeTypeBind:
			if _, err := os.Stat(volume.Source); err != nil {
				c.add("%s: %v", s.Name, err)
			}
			if !volume.ReadOnly {
				c.add("%s may write to %s", s.Name, volume.Source)
			}
		}
	}
	if kept != "" {
		c.add("%s: no volume is at %s, where its data is", s.Name, kept)
	}
}

// order checks that services wait until others are healthy, or have ended well.
func (c *checker) order(s types.ServiceConfig) {
	for name, dependency := range s.DependsOn {
		if dependency.Condition == types.ServiceConditionStarted {
			c.add("%s waits for %s to start, and not until it is healthy", s.Name, name)
		}
		if other := c.project.Services[name]; len(other.Profiles) > 0 && dependency.Required && !slices.Equal(s.Profiles, other.Profiles) {
			c.add("%s needs %s, which is only there with a profile", s.Name, name)
		}
	}
}

// ours checks that our services have only what they need; the one that ends migrates, the
// others serve.
func (c *checker) ours(s types.ServiceConfig) {
	var want []string
	if c.ends(s.Name) {
		want = []string{"migrate"}
	}
	if len(s.Entrypoint) > 0 || !slices.Equal(s.Command, want) {
		c.add("%s runs %v %v, want %v", s.Name, s.Entrypoint, s.Command, want)
	}
	if !s.ReadOnly || !slices.Contains(s.CapDrop, "ALL") || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || len(s.CapAdd) > 0 {
		c.add("%s: it is not read_only, without capabilities and new privileges", s.Name)
	}
	if s.User != "" && strings.HasPrefix(s.User, "0") || s.User == "root" {
		c.add("%s runs as root", s.Name)
	}
}
