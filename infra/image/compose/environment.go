package compose

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/miniserversystem/miniserver/pkg/settings"
)

// Settings reads the environment of a service of ours, as the service does. An unknown
// name is an error: no setting would read it.
func Settings(s types.ServiceConfig) (settings.Settings, error) {
	given := map[string]string{}
	known := reflect.TypeFor[settings.Settings]()
	for name, value := range s.Environment {
		if !slices.ContainsFunc(reflect.VisibleFields(known), func(f reflect.StructField) bool { return f.Tag.Get("env") == name }) {
			return settings.Settings{}, fmt.Errorf("%s: settings do not know %s", s.Name, name)
		}
		if value != nil {
			given[name] = *value
		}
	}
	return settings.LoadFrom(given)
}

// CheckURLs follows every URL in the environment of a service of ours: it must lead to a
// service with that name or address, to a port that it listens on, with the password that
// it has.
func CheckURLs(project *types.Project, s types.ServiceConfig) []string {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		value := s.Environment[name]
		if value == nil || !strings.Contains(*value, "://") || name == "GATEWAY_URL" {
			continue
		}
		if problem := follow(project, s, *value, false); problem != "" {
			problems = append(problems, fmt.Sprintf("%s: %s: %s", s.Name, name, problem))
		}
	}
	return problems
}

// assignment is NAME=url in a comment.
var assignment = regexp.MustCompile(`\b([A-Z][A-Z_]+)=(\S+://\S+)`)

// CheckComments follows every URL that a comment of the file gives to make run, which
// reaches services by the ports that are published; wanted are the names that must be
// there.
func CheckComments(project *types.Project, content []byte, wanted ...string) []string {
	var problems []string
	found := map[string]string{}
	for line := range strings.Lines(string(content)) {
		comment, ok := strings.CutPrefix(strings.TrimSpace(line), "#")
		if !ok {
			continue
		}
		for _, m := range assignment.FindAllStringSubmatch(comment, -1) {
			found[m[1]] = m[2]
		}
	}
	for _, name := range wanted {
		value, ok := found[name]
		if !ok {
			problems = append(problems, "no comment says what "+name+" is for make run")
		} else if problem := follow(project, types.ServiceConfig{}, value, true); problem != "" {
			problems = append(problems, "the comment's "+name+": "+problem)
		}
	}
	if _, err := settings.LoadFrom(found); err != nil {
		problems = append(problems, "the comments: "+err.Error())
	}
	return problems
}

// follow returns why an address leads nowhere, or "".
func follow(project *types.Project, from types.ServiceConfig, address string, published bool) string {
	u, err := url.Parse(address)
	if err != nil {
		return "it cannot be parsed" // not the error: it has the password
	}
	host, port := u.Hostname(), u.Port()
	if ips := from.ExtraHosts[host]; len(ips) > 0 {
		host = ips[0]
	}
	for name, service := range project.Services {
		if !answers(service, name, host, port, published) {
			continue
		}
		if password, _ := u.User.Password(); !knows(project, service, u.User.Username(), password) {
			return "its user or password is not that of " + name
		}
		return ""
	}
	return fmt.Sprintf("nothing is at %s", net.JoinHostPort(u.Hostname(), port))
}

// listens are the ports inside, which images choose; others are what is published.
var listens = map[string]string{
	"postgres": "5432", "redis": "6379", "nats": "4222", "rabbitmq": "5672",
	"prometheus": "9090", "grafana": "3000", "collector": "4318", "jaeger": "16686",
}

func answers(s types.ServiceConfig, name, host, port string, published bool) bool {
	for _, p := range s.Ports {
		if published && p.HostIP == host && p.Published == port {
			return true
		}
		if inside := fmt.Sprint(p.Target); !published && inside == port && (host == name || host == address(s)) {
			own := listens[name]
			if name == "keycloak" {
				if chosen := s.Environment["KC_HTTP_PORT"]; chosen != nil {
					own = *chosen
				} else {
					own = "8080"
				}
			}
			return own == inside
		}
	}
	return false
}

// address returns the fixed address of a service, or "-".
func address(s types.ServiceConfig) string {
	for _, network := range s.Networks {
		if network != nil && network.Ipv4Address != "" {
			return network.Ipv4Address
		}
	}
	return "-"
}

// knows reports whether a server admits a user: its first one, one in its file of users,
// or, in Postgres, one that migrate makes.
func knows(project *types.Project, s types.ServiceConfig, user, password string) bool {
	if s.Name == "postgres" {
		for name, value := range project.Services["migrate"].Environment {
			if value == nil || !strings.HasSuffix(name, "_DATABASE_URL") || name == "MIGRATION_DATABASE_URL" {
				continue
			}
			if u, err := url.Parse(*value); err == nil && u.User.String() == url.UserPassword(user, password).String() {
				return true
			}
		}
	}
	line := map[string]string{
		"redis": "user " + user + " on >" + password + " ", "nats": fmt.Sprintf("{user: %s, password: %q", user, password),
	}[s.Name]
	for _, volume := range s.Volumes {
		if line != "" && volume.Type == types.VolumeTypeBind {
			users, err := os.ReadFile(volume.Source)
			return err == nil && user != "" && strings.Contains(string(users), line)
		}
	}
	made, secret := credentials(s)
	return user == made && password == secret
}

// credentials returns a server's first user and its password.
func credentials(s types.ServiceConfig) (user, password string) {
	for _, names := range [][2]string{{"POSTGRES_USER", "POSTGRES_PASSWORD"}, {"RABBITMQ_DEFAULT_USER", "RABBITMQ_DEFAULT_PASS"}} {
		if u, p := s.Environment[names[0]], s.Environment[names[1]]; u != nil && p != nil {
			return *u, *p
		}
	}
	return "", ""
}
