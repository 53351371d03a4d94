package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/awslabs/goformation/v7/schema"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/miniserversystem/miniserver/functions"
	"github.com/miniserversystem/miniserver/pkg/auth"
	"github.com/miniserversystem/miniserver/pkg/fn"
	"github.com/miniserversystem/miniserver/pkg/settings"
	"github.com/miniserversystem/miniserver/test/kit"
)

// values are the parameters of a possible deployment.
var values = map[string]any{
	"SecretId": "miniserver", "PublicUrl": "https://api.example.com", "OidcIssuer": "https://id.example.com",
	"NotificationChannel": "webhook", "WebhookUrls": "https://a.example.com/hook,https://b.example.com/hook",
	"SubnetIds": []any{"subnet-1"}, "SecurityGroupIds": []any{"sg-1"},
}

// secrets are what the secret holds.
var secrets = map[string]string{
	"DATABASE_URL": "postgres://u:p@db.example.com/miniserver", "REDIS_URL": "rediss://r.example.com:6379", "NATS_URL": "nats://n.example.com",
	"OIDC_CLIENT_SECRET": "s", "WEBHOOK_SECRETS": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
}

// samFunction is AWS' own schema of AWS::Serverless::Function.
var samFunction = sync.OnceValues(func() (*jsonschema.Schema, error) {
	var document map[string]any
	if err := json.Unmarshal([]byte(schema.SamSchema), &document); err != nil {
		return nil, err
	}
	delete(document, "$id") // the name of the meta-schema
	definitions := document["definitions"].(map[string]any)
	maps.DeleteFunc(definitions, func(name string, _ any) bool { return !strings.HasPrefix(name, "AWS::Serverless::Function") })
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft4)
	if err := compiler.AddResource("sam.json", map[string]any{
		"$ref": "#/definitions/AWS::Serverless::Function", "definitions": definitions,
	}); err != nil {
		return nil, err
	}
	return compiler.Compile("sam.json")
})

// check returns everything that is wrong with a template: by AWS' schema, by the
// registry, and by the checks that a process makes of its environment.
func check(text []byte, given map[string]any) (wrong []string) {
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	t, err := readTemplate(text, given)
	if err != nil {
		return []string{err.Error()}
	}
	compiled, err := samFunction()
	if err != nil {
		return []string{err.Error()}
	}
	if t.body["Transform"] != "AWS::Serverless-2016-10-31" {
		say("Transform is %v", t.body["Transform"])
	}
	resources := object(t.body, "Resources")
	for id := range t.parameters {
		name, isURL := strings.CutSuffix(id, "Url")
		if resources[id] != nil || isURL && resources[name] != nil {
			say("parameter %s has the name of a resource", id) // a function URL's is <function>Url
		}
	}
	gateways, ticked := 0, map[string]bool{}
	for id, resource := range resources {
		// As JSON: the schema's numbers are JSON's.
		plain, _ := json.Marshal(resource)
		instance, err := jsonschema.UnmarshalJSON(strings.NewReader(string(plain)))
		if err == nil {
			err = compiled.Validate(instance)
		}
		if err != nil {
			say("%s: %v", id, err)
			continue
		}
		properties := object(resource.(map[string]any), "Properties")
		s, err := deployed(properties)
		if err != nil {
			say("%s: %v", id, err)
			continue
		}
		if s.Function == "" {
			gateways++
			checkGateway(say, id, properties, s)
			continue
		}
		f, err := functions.Named(s.Function)
		if err != nil {
			say("%s: %v", id, err)
			continue
		}
		ticked[f.Name] = true
		checkTicked(say, id, properties, s, f)
	}
	if gateways != 1 {
		say("%d gateways", gateways)
	}
	for _, f := range functions.All {
		if ticked[f.Name] != (f.Schedule > 0) {
			say("%s is ticked: %v", f.Name, ticked[f.Name])
		}
	}
	return wrong
}

var dynamic = regexp.MustCompile(`^\{\{resolve:secretsmanager:miniserver:SecretString:([A-Z_]+)\}\}$`)

// deployed returns the settings that a process would have, and the error with which
// it would end.
func deployed(properties map[string]any) (settings.Settings, error) {
	environment := map[string]string{}
	for name, value := range object(object(properties, "Environment"), "Variables") {
		text, ok := value.(string)
		if !ok {
			return settings.Settings{}, fmt.Errorf("%s is no string", name)
		}
		if name == "SECRETS_REVISION" { // nobody reads it
			continue
		}
		if !strings.Contains(string(settings.Markdown()), "| `"+name+"` |") {
			return settings.Settings{}, fmt.Errorf("there is no setting %s", name)
		}
		if secret := dynamic.FindStringSubmatch(text); secret != nil {
			if text, ok = secrets[secret[1]]; !ok || secret[1] != name {
				return settings.Settings{}, fmt.Errorf("%s is the secret %s", name, secret[1])
			}
		}
		environment[name] = text
	}
	s, err := settings.LoadFrom(environment)
	if err == nil {
		err = unfit(s)
	}
	if err != nil {
		return s, err
	}
	runs := functions.All
	if s.Function != "" {
		f, err := functions.Named(s.Function)
		if err != nil {
			return s, err
		}
		runs = []fn.Function{f}
	} else if s.IdentitySigningKey, s.IdentityVerifyKeys, err = auth.NewKeyPair(); err != nil {
		return s, err
	}
	rt := fn.NewRuntime(s, slog.New(slog.DiscardHandler), functions.All)
	defer rt.Close()
	rt.Invoke = rt.Here
	return s, rt.Host(runs...)
}

func checkAll(say func(string, ...any), id string, properties map[string]any) {
	for name, want := range map[string]any{"Runtime": "provided.al2023", "Handler": "bootstrap", "CodeUri": "../../.local/lambda/", "Architectures": "[arm64]"} {
		if fmt.Sprint(properties[name]) != want {
			say("%s: %s is %v", id, name, properties[name])
		}
	}
}

func checkGateway(say func(string, ...any), id string, properties map[string]any, s settings.Settings) {
	checkAll(say, id, properties)
	address := object(properties, "FunctionUrlConfig")
	if address["InvokeMode"] != "RESPONSE_STREAM" || address["AuthType"] != "NONE" {
		say("%s: FunctionUrlConfig is %v", id, address)
	}
	if timeout := seconds(properties); timeout > 15*time.Minute || s.StreamLifetime+answerMargin >= timeout {
		say("%s: a timeout of %s and STREAM_LIFETIME %s", id, timeout, s.StreamLifetime)
	}
	if properties["Events"] != nil || properties["ReservedConcurrentExecutions"] != nil {
		say("%s: has a schedule, or few instances", id)
	}
}

func checkTicked(say func(string, ...any), id string, properties map[string]any, s settings.Settings, f fn.Function) {
	checkAll(say, id, properties)
	if s.TickBudget+answerMargin >= seconds(properties) || s.TickBudget >= time.Minute {
		say("%s: TICK_BUDGET %s in %s", id, s.TickBudget, seconds(properties))
	}
	if lingers := s.TickLinger > 0; lingers != (f.Schedule < time.Minute) || lingers && (s.TickLinger != s.TickBudget || s.TickPoll > f.Schedule) {
		say("%s: lingers for %s, polls each %s", id, s.TickLinger, s.TickPoll)
	}
	if reserved := properties["ReservedConcurrentExecutions"]; (reserved != nil) != (f.MaxScale == 1) || reserved != nil && reserved != 1 {
		say("%s: ReservedConcurrentExecutions is %v", id, reserved)
	}
	if properties["FunctionUrlConfig"] != nil {
		say("%s: anybody can tick it", id)
	}
	events := object(properties, "Events")
	for name := range events {
		event := events[name].(map[string]any)
		if event["Type"] != "Schedule" || object(event, "Properties")["Schedule"] != "rate(1 minute)" {
			say("%s: event %s is %v", id, name, event)
		}
	}
	if len(events) != 1 || object(properties, "EventInvokeConfig")["MaximumRetryAttempts"] != 0 {
		say("%s: %d events, EventInvokeConfig %v", id, len(events), properties["EventInvokeConfig"])
	}
}

func seconds(properties map[string]any) time.Duration {
	n, _ := properties["Timeout"].(int)
	return time.Duration(n) * time.Second
}

func TestTemplate(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("template.yaml")
	kit.Must(t, err)
	least := map[string]any{"SecretId": "miniserver", "PublicUrl": "https://api.example.com", "OidcIssuer": "https://id.example.com"}
	for name, given := range map[string]map[string]any{"all parameters": values, "the least": least} {
		for _, wrong := range check(text, given) {
			t.Errorf("with %s: %s", name, wrong)
		}
	}
	// Planted mistakes must be found.
	for name, edit := range map[string][2]string{
		"unknown property":         {"MemorySize: 512", "MemorySise: 512"},
		"wrong type":               {"MemorySize: 512", "MemorySize: lots"},
		"unknown resource type":    {"Type: AWS::Serverless::Function", "Type: AWS::Serverless::Functoin"},
		"no such parameter":        {"!Ref PublicUrl", "!Ref GatewayUrl"},
		"name of a function URL":   {"GameServer", "GatewayUrl"},
		"no such condition":        {"!If [SendsWebhooks", "!If [SendsHooks"},
		"twice":                    {"      MemorySize: 512", "      MemorySize: 512\n      MemorySize: 512"},
		"buffered":                 {"RESPONSE_STREAM", "BUFFERED"},
		"no transform":             {"Transform: AWS::Serverless-2016-10-31", "Transform: AWS::Other"},
		"event of an unknown kind": {"Schedule: rate(1 minute)", "Scedule: rate(1 minute)"},
		"every hour":               {"rate(1 minute)", "rate(1 hour)"},
		"unknown function":         {"FUNCTION: relay", "FUNCTION: rely"},
		"a function twice":         {"FUNCTION: relay", "FUNCTION: deliver"},
		"unknown setting":          {"GATEWAY_URL:", "GATEWAY_URI:"},
		"setting out of range":     {"STREAM_LIFETIME: 60s", "STREAM_LIFETIME: 5m"},
		"secret of another":        {"SecretString:NATS_URL", "SecretString:REDIS_URL"},
		"store missing":            {`          NATS_URL: !Sub "{{resolve:secretsmanager:${SecretId}:SecretString:NATS_URL}}"` + "\n          TICK", "          TICK"},
		"wakes":                    {`WAKES: "false"`, `WAKES: "true"`},
		"a boolean":                {`WAKES: "false"`, `WAKES: false`},
		"schedule":                 {`SCHEDULE: "off"`, `SCHEDULE: auto`},
		"reserved":                 {"ReservedConcurrentExecutions: 1", "ReservedConcurrentExecutions: 2"},
		"timeout of a tick":        {"Timeout: 60\n", "Timeout: 55\n"},
		"timeout of the gateway":   {"Timeout: 300\n", "Timeout: 60\n"},
		"retries":                  {"MaximumRetryAttempts: 0", "MaximumRetryAttempts: 2"},
		"runtime":                  {"provided.al2023", "provided.al2"},
		"tab":                      {"  Gateway:", "\tGateway:"},
	} {
		planted := strings.Replace(string(text), edit[0], edit[1], -1)
		if planted == string(text) {
			t.Errorf("%s: nothing to change", name)
		} else if len(check([]byte(planted), values)) == 0 {
			t.Errorf("not found: %s", name)
		}
	}
}
