// Package settings reads everything that can be configured from the
// environment, once, into one struct. Each field carries its name, default and
// meaning; docs/configuration.md is generated from the same tags.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
)

// Values of TRANSFER_BROKER: the broker that carries completed transfers.
const (
	JetStream = "jetstream"
	RabbitMQ  = "rabbitmq"
)

// Settings is the whole configuration. Durations are written as in Go: 30s, 5m, 24h.
type Settings struct {
	Function string `env:"FUNCTION" doc:"The function that this process runs. Unset: the gateway with every function behind it in one process, and their schedule."`
	Port     int    `env:"PORT" envDefault:"8080" min:"1" max:"65535" doc:"Port to listen on."`
	LogLevel string `env:"LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error."`

	DatabaseURL             string `env:"DATABASE_URL" doc:"Postgres 15 or later, as a URL; with several hosts (host1:5432,host2:5432) the first that can write is used, unless its target_session_attrs says otherwise."`
	EntitlementDatabaseURL  string `env:"ENTITLEMENT_DATABASE_URL" doc:"Database of the entitlement schema; falls back to DATABASE_URL."`
	CleanupDatabaseURL      string `env:"ENTITLEMENT_CLEANUP_DATABASE_URL" doc:"As ENTITLEMENT_DATABASE_URL, for cleanup, whose role owns the audit; falls back to it."`
	AccountDatabaseURL      string `env:"ACCOUNT_DATABASE_URL" doc:"Database of the account schema; falls back to DATABASE_URL."`
	NotificationDatabaseURL string `env:"NOTIFICATION_DATABASE_URL" doc:"Database of the notification schema; falls back to DATABASE_URL."`
	TransferDatabaseURL     string `env:"TRANSFER_DATABASE_URL" doc:"Database of the schemas core and integration; falls back to DATABASE_URL."`
	MigrationDatabaseURL    string `env:"MIGRATION_DATABASE_URL" doc:"Where miniserver migrate connects to, directly and as the owner of the schemas. The roles that the other URLs name are then given their rights."`
	PostgresPoolSize        int32  `env:"POSTGRES_POOL_SIZE" envDefault:"16" min:"2" max:"1000" doc:"Connections a process opens to each database at most."`
	PostgresExecMode        string `env:"POSTGRES_EXEC_MODE" envDefault:"cache_statement" doc:"cache_statement, cache_describe, describe_exec, exec or simple_protocol. Behind PgBouncer in transaction mode: exec."`
	RedisURL                string `env:"REDIS_URL" doc:"Redis 7 or later, as a URL. With master_name=… in it, the URL is that of a Sentinel: &addr=host:port adds further ones, &username=… and &password=… are those of Redis, percent-encoded."`
	RedisCluster            bool   `env:"REDIS_CLUSTER" envDefault:"false" doc:"Whether REDIS_URL names a node of a Redis Cluster; ?addr=host:port&addr=… adds further ones. The rest are found through them."`
	SessionRedisURL         string `env:"SESSION_REDIS_URL" doc:"Redis of sessions, sign-ins in progress, limits and open streams; falls back to REDIS_URL. A separate one keeps working when the matchmaking queues fill theirs. As REDIS_URL, it may name Sentinels."`
	SessionRedisCluster     bool   `env:"SESSION_REDIS_CLUSTER" envDefault:"false" doc:"Whether SESSION_REDIS_URL names a node of a Redis Cluster."`
	NATSURL                 string `env:"NATS_URL" doc:"NATS with JetStream, as a URL, or as several of one cluster, separated by commas."`
	MetricsAddress          string `env:"METRICS_ADDRESS" doc:"host:port of a separate listener for /metrics (Prometheus) and /debug/pprof/. Unset: none. Keep it off the public network."`

	OTLPOff             bool   `env:"OTEL_SDK_DISABLED" envDefault:"false" doc:"Whether to send neither traces nor metrics, whatever the other OTEL_ settings say. METRICS_ADDRESS is not affected."`
	OTLPEndpoint        string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"Base URL of an OpenTelemetry collector that takes OTLP over HTTP, such as http://127.0.0.1:4318: traces go to /v1/traces below it, metrics to /v1/metrics. Unset: nothing is sent. The further variables of OpenTelemetry's exporter (OTEL_EXPORTER_OTLP_HEADERS, _CERTIFICATE, _TIMEOUT, _COMPRESSION), batches (OTEL_BSP_…), OTEL_METRIC_EXPORT_INTERVAL and OTEL_RESOURCE_ATTRIBUTES hold too."`
	OTLPTracesEndpoint  string `env:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" doc:"URL for traces alone, used as it is."`
	OTLPMetricsEndpoint string `env:"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT" doc:"URL for metrics alone, used as it is."`
	OTLPProtocol        string `env:"OTEL_EXPORTER_OTLP_PROTOCOL" envDefault:"http/protobuf" doc:"Only http/protobuf."`
	TracesExporter      string `env:"OTEL_TRACES_EXPORTER" envDefault:"otlp" doc:"otlp, or none to send no traces."`
	MetricsExporter     string `env:"OTEL_METRICS_EXPORTER" envDefault:"otlp" doc:"otlp, or none to send no metrics."`
	TracesSampler       string `env:"OTEL_TRACES_SAMPLER" envDefault:"parentbased_always_on" doc:"Which traces are recorded: always_on, always_off, traceidratio, or one of these after parentbased_, which follows the caller's decision where there is one."`
	TracesSamplerArg    string `env:"OTEL_TRACES_SAMPLER_ARG" envDefault:"1" doc:"The share of traces that traceidratio records, 0 to 1."`
	ServiceName         string `env:"OTEL_SERVICE_NAME" envDefault:"miniserver" doc:"What traces and metrics call this service."`

	PublicURL            string            `env:"GATEWAY_URL" envDefault:"http://127.0.0.1:8080" doc:"The gateway's address as clients see it."`
	OIDCIssuer           string            `env:"OIDC_ISSUER" doc:"Issuer of the bearer tokens that the gateway accepts."`
	OIDCAudience         string            `env:"OIDC_AUDIENCE" envDefault:"miniserver" doc:"Audience that an access token must name."`
	OIDCClients          []string          `env:"OIDC_CLIENTS" envDefault:"miniserver-web,purchase-service,ops" doc:"Clients whose access tokens are accepted (azp), separated by commas; add that of each app."`
	OIDCClientID         string            `env:"OIDC_CLIENT_ID" envDefault:"miniserver-web" doc:"The client under which the gateway signs people in."`
	OIDCClientSecret     string            `env:"OIDC_CLIENT_SECRET" secret:"true" doc:"Its secret; empty for a public client."`
	OIDCScopes           []string          `env:"OIDC_SCOPES" envDefault:"openid,profile" doc:"Scopes to ask for, separated by commas. Issuers other than Keycloak may want offline_access before they give refresh tokens."`
	SessionIdle          time.Duration     `env:"SESSION_IDLE" envDefault:"12h" min:"1m" max:"8760h" doc:"How long a browser session lives without a request."`
	SessionLifetime      time.Duration     `env:"SESSION_LIFETIME" envDefault:"168h" min:"1m" max:"8760h" doc:"How long a browser session lives at most."`
	LimitPlayerRate      int               `env:"LIMIT_PLAYER_RATE" envDefault:"300" min:"1" max:"1000000" doc:"Requests a second that a player may send."`
	LimitPlayerBurst     int               `env:"LIMIT_PLAYER_BURST" envDefault:"1000" min:"1" max:"1000000" doc:"Requests that a player may send at once."`
	LimitServiceRate     int               `env:"LIMIT_SERVICE_RATE" envDefault:"5000" min:"1" max:"1000000" doc:"Requests a second that a caller with a role above player may send."`
	LimitServiceBurst    int               `env:"LIMIT_SERVICE_BURST" envDefault:"5000" min:"1" max:"1000000" doc:"Requests that such a caller may send at once."`
	LimitAnonymousRate   int               `env:"LIMIT_ANONYMOUS_RATE" envDefault:"100" min:"1" max:"1000000" doc:"Requests a second that an address may send without a valid token or session."`
	LimitAnonymousBurst  int               `env:"LIMIT_ANONYMOUS_BURST" envDefault:"200" min:"1" max:"1000000" doc:"Requests that an address may send at once without them."`
	LimitSignIns         int               `env:"LIMIT_SIGN_INS" envDefault:"120" min:"1" max:"1000000" doc:"Sign-ins that an address may begin in a minute. Each takes about 700 bytes of Redis until it is finished, 10 minutes at most."`
	LimitPatience        time.Duration     `env:"LIMIT_PATIENCE" envDefault:"100ms" min:"1ms" max:"1s" doc:"How long a request waits for Redis to count it. After that, each process enforces the limits by itself and asks Redis again a second later."`
	TrustedProxies       []string          `env:"TRUSTED_PROXIES" doc:"Addresses or CIDRs, separated by commas, of proxies whose X-Forwarded-For is trusted."`
	OverviewTimeout      time.Duration     `env:"OVERVIEW_TIMEOUT" envDefault:"2s" min:"10ms" max:"30s" doc:"How long /v1/me/overview waits for all its parts."`
	RequestsPerFunction  int               `env:"REQUESTS_PER_FUNCTION" envDefault:"256" min:"1" max:"100000" doc:"Requests to one function that a gateway process works on at once. The others get 503 overloaded at once, before they cost anything."`
	StreamsPerUser       int               `env:"STREAMS_PER_USER" envDefault:"8" min:"1" max:"1000" doc:"Live streams that a user may have open at once, on all instances together."`
	StreamsPerProcess    int               `env:"STREAMS_PER_PROCESS" envDefault:"1000" min:"1" max:"1000000" doc:"Live streams that a gateway process holds at once. A gateway in a process of its own gives at most half of its concurrency to streams, which leaves the other half to requests."`
	StreamLookEvery      time.Duration     `env:"STREAM_LOOK_EVERY" envDefault:"10s" min:"100ms" max:"1m" doc:"How often a live stream reads what no nudge announced; that also keeps its connection alive."`
	StreamLifetime       time.Duration     `env:"STREAM_LIFETIME" envDefault:"4m" min:"1s" max:"4m59s" doc:"How long a live stream lives before it ends and the client reconnects; below the platform's timeout of the functions stream and gateway, which is 5m by default."`
	FunctionURL          string            `env:"FUNCTION_URL" doc:"How the gateway and wakes reach functions in other processes: a URL with {function} in it, such as http://{function}.default.svc.cluster.local, or pairs such as grant=http://127.0.0.1:8081,relay=http://127.0.0.1:8082."`
	IdentitySigningKey   string            `env:"IDENTITY_SIGNING_KEY" secret:"true" doc:"The gateway's private Ed25519 key as a JWK with a kid; it signs caller statements. make identity-key prints a pair."`
	IdentityVerifyKeys   string            `env:"IDENTITY_VERIFY_KEYS" doc:"Public Ed25519 keys as a JWK Set; functions trust caller statements that one of them signed. To rotate, list the old and the new."`
	ReadHeaderTimeout    time.Duration     `env:"READ_HEADER_TIMEOUT" envDefault:"5s" min:"100ms" max:"15s" doc:"How long a client may take to send its headers."`
	ShutdownGrace        time.Duration     `env:"SHUTDOWN_GRACE" envDefault:"12s" min:"1s" max:"10m" doc:"How long running requests may take after SIGTERM. Where a store is silent, most take 10 s."`
	DebugEndpoints       bool              `env:"DEBUG_ENDPOINTS" envDefault:"false" doc:"Whether /debug/notification/inbox/{user_id} exists (operators only)."`
	Schedule             string            `env:"SCHEDULE" envDefault:"auto" doc:"auto: a process that holds all functions ticks them itself; off: something outside ticks them."`
	Wakes                bool              `env:"WAKES" envDefault:"true" doc:"Whether a commit nudges the next function at once. Off: it runs at its next tick."`
	TickBudget           time.Duration     `env:"TICK_BUDGET" envDefault:"20s" min:"100ms" max:"10m" doc:"How long one tick may drain before it answers that there is more."`
	TickLinger           time.Duration     `env:"TICK_LINGER" envDefault:"0s" min:"0s" max:"10m" doc:"How long a tick keeps polling after it found nothing. 0s where ticks come every second; 55s, as TICK_BUDGET, where cron runs once a minute."`
	TickPoll             time.Duration     `env:"TICK_POLL" envDefault:"200ms" min:"10ms" max:"1m" doc:"How often a lingering tick polls."`
	LeaseDuration        time.Duration     `env:"LEASE_DURATION" envDefault:"30s" min:"1s" max:"1h" doc:"How long a worker may hold a claimed row."`
	LeaseBatch           int               `env:"LEASE_BATCH" envDefault:"200" min:"1" max:"500" doc:"Rows that one claim takes at most; beyond 500, finishing a batch would lock its rows for too long."`
	LeaseMaxAttempts     int               `env:"LEASE_MAX_ATTEMPTS" envDefault:"10" min:"1" max:"10000" doc:"Claims that a row gets before it is FAILED."`
	LeaseBackoffBase     time.Duration     `env:"LEASE_BACKOFF_BASE" envDefault:"1s" min:"10ms" max:"1h" doc:"Backoff after the first failure; it doubles, times 0.5 to 1.5."`
	LeaseBackoffCap      time.Duration     `env:"LEASE_BACKOFF_CAP" envDefault:"60s" min:"10ms" max:"24h" doc:"Longest backoff, before the factor of 0.5 to 1.5."`
	DeliveryMaxAttempts  int               `env:"DELIVERY_MAX_ATTEMPTS" envDefault:"0" min:"0" max:"10000" doc:"Claims a notification gets before it is FAILED; 0 is LEASE_MAX_ATTEMPTS. Raise it where receivers may be down for hours."`
	DeliveryBackoffCap   time.Duration     `env:"DELIVERY_BACKOFF_CAP" envDefault:"0s" min:"0s" max:"24h" doc:"Longest backoff of a notification; 0s is LEASE_BACKOFF_CAP."`
	StreamMaxBytes       int64             `env:"STREAM_MAX_BYTES" envDefault:"-1" min:"-1" max:"9000000000000000000" doc:"Bytes a JetStream stream may hold, 1 MiB at least; -1 is as much as the server has. A full stream refuses new events and drops none, so leave room for STREAM_MAX_AGE at about 1 kB an event. Used when the stream is made."`
	StreamMaxAge         time.Duration     `env:"STREAM_MAX_AGE" envDefault:"168h" min:"1h" max:"8760h" doc:"How long a JetStream stream keeps an event. Used when the stream is made."`
	StreamReplicas       int               `env:"STREAM_REPLICAS" envDefault:"1" min:"1" max:"5" doc:"Replicas of a JetStream stream: 1, 3 or 5."`
	ReconcileAfter       time.Duration     `env:"RECONCILE_AFTER" envDefault:"5m" min:"30s" max:"24h" doc:"Age at which reconcile checks that a published event arrived. Keep it above the duration of statements, and the difference of the clocks of a store's servers (with RabbitMQ also of the functions')."`
	NotificationChannel  string            `env:"NOTIFICATION_CHANNEL" envDefault:"log" doc:"Where notifications are sent: log or webhook."`
	WebhookURLs          []string          `env:"WEBHOOK_URLS" doc:"Endpoints that get each notification as a Standard Webhook, separated by commas."`
	WebhookSecrets       []string          `env:"WEBHOOK_SECRETS" secret:"true" doc:"Signing secrets (whsec_…), separated by commas. Every one signs: to rotate, list the new and the old until receivers know the new. Who has one can sign to all receivers that take it: give each receiver one of its own."`
	WebhookAllowPrivate  bool              `env:"WEBHOOK_ALLOW_PRIVATE" envDefault:"false" doc:"Whether webhooks may go to loopback, private, link-local and other special-purpose addresses, and over plain http."`
	WebhookTimeout       time.Duration     `env:"WEBHOOK_TIMEOUT" envDefault:"5s" min:"10ms" max:"10m" doc:"How long one webhook call may take; below half of LEASE_DURATION."`
	MatchmakingModes     []string          `env:"MATCHMAKING_MODES" envDefault:"casual,rank" doc:"Names of the queues, letters a to z, separated by commas."`
	MatchmakingRanked    []string          `env:"MATCHMAKING_RANKED" envDefault:"rank" doc:"Those of them in which attributes.skill counts."`
	MatchmakingAgree     map[string]string `env:"MATCHMAKING_AGREE" envDefault:"rank:region" doc:"Attributes that must be equal where both tickets have them, by mode, such as rank:region+language,casual:region. At most 3 a mode. A change applies to tickets that join after it."`
	MatchmakingTTL       time.Duration     `env:"MATCHMAKING_TTL" envDefault:"120s" min:"1s" max:"1h" doc:"How long a ticket waits."`
	MatchmakingWindows   []int             `env:"MATCHMAKING_WINDOWS" envDefault:"100,200,400,800,1600" min:"0" max:"1000000000" doc:"Largest difference in skill: the first value when a ticket joins, the next one after each MATCHMAKING_WIDEN_EVERY. At most 8."`
	MatchmakingWiden     time.Duration     `env:"MATCHMAKING_WIDEN_EVERY" envDefault:"5s" min:"100ms" max:"1h" doc:"How long a ticket waits before its skill window becomes the next one."`
	MatchmakingQueue     int               `env:"MATCHMAKING_QUEUE_LIMIT" envDefault:"200000" min:"2" max:"10000000" doc:"Tickets that a queue holds at most; about 1 to 1.5 kB each in Redis."`
	MatchmakingPairs     int               `env:"MATCHMAKING_PAIRS" envDefault:"25" min:"1" max:"100" doc:"Pairs that one script makes at most. Redis runs nothing else meanwhile."`
	Allocator            string            `env:"ALLOCATOR" envDefault:"fixed" doc:"What allocates the game server of a match: fixed (one server for all, at GAME_SERVER) or agones."`
	AllocatorPatience    time.Duration     `env:"ALLOCATOR_PATIENCE" envDefault:"30s" min:"0s" max:"5m" doc:"How long a match waits for a game server before it is announced without one."`
	GameServer           string            `env:"GAME_SERVER" envDefault:"localhost:7777" doc:"host:port of the game server that hosts every match, with ALLOCATOR=fixed."`
	AgonesURL            string            `env:"AGONES_URL" doc:"Agones' allocator service, such as https://agones-allocator.agones-system."`
	AgonesNamespace      string            `env:"AGONES_NAMESPACE" envDefault:"default" doc:"Namespace of the game servers."`
	AgonesFleet          string            `env:"AGONES_FLEET" doc:"Fleet that game servers are taken from."`
	AgonesCert           string            `env:"AGONES_CERT_FILE" doc:"Client certificate for the allocator service (PEM)."`
	AgonesKey            string            `env:"AGONES_KEY_FILE" doc:"Its private key (PEM)."`
	AgonesCA             string            `env:"AGONES_CA_FILE" doc:"Certificate authority of the allocator service (PEM)."`
	TransferBroker       string            `env:"TRANSFER_BROKER" envDefault:"jetstream" doc:"What carries completed transfers to settle: jetstream or rabbitmq."`
	RabbitMQURL          string            `env:"RABBITMQ_URL" doc:"RabbitMQ, as an amqp:// or amqps:// URL; for TRANSFER_BROKER=rabbitmq."`
	RabbitMQQueue        string            `env:"RABBITMQ_QUEUE" envDefault:"quorum" doc:"Type of a new queue: quorum (replicated in a cluster) or classic (for a single node)."`
	TransferOrphanAfter  time.Duration     `env:"TRANSFER_ORPHAN_AFTER" envDefault:"60s" min:"10s" max:"24h" doc:"How long a transfer may be in progress before the watchdog ends it as FAILED (TIMEOUT)."`
	IdempotencyRetention time.Duration     `env:"IDEMPOTENCY_RETENTION" envDefault:"24h" min:"1m" max:"8760h" doc:"How long an Idempotency-Key is remembered."`
	OutboxRetention      time.Duration     `env:"OUTBOX_RETENTION" envDefault:"168h" min:"1h" max:"8760h" doc:"How long PUBLISHED outbox rows are kept. Rows that reconcile has not passed are kept longer, until a day before PROCESSED_RETENTION."`
	ProcessedRetention   time.Duration     `env:"PROCESSED_RETENTION" envDefault:"720h" min:"25h" max:"17520h" doc:"How long processed event ids are kept; at least a day longer than STREAM_MAX_AGE and OUTBOX_RETENTION."`
	SentRetention        time.Duration     `env:"SENT_RETENTION" envDefault:"720h" min:"1h" max:"87600h" doc:"How long SENT notifications are kept."`
	FailedRetention      time.Duration     `env:"FAILED_RETENTION" envDefault:"0s" min:"0s" max:"87600h" doc:"How long FAILED events and notifications, and their dead letters, are kept: a day at least, 0s for good. Dead letters of messages that could not be read stay in any case."`
	AuditRetentionMonths int               `env:"AUDIT_RETENTION_MONTHS" envDefault:"13" min:"1" max:"1200" doc:"Months of audit kept; older partitions are dropped."`
}

// Load reads the environment. The error is one line that names what is wrong.
func Load() (Settings, error) { return LoadFrom(nil) }

// LoadFrom reads from environment, or from the process's when it is nil.
func LoadFrom(environment map[string]string) (Settings, error) {
	var s Settings
	if environment == nil {
		environment = env.ToMap(os.Environ())
	}
	environment, err := withFiles(environment)
	if err != nil {
		return s, err
	}
	if err := env.ParseWithOptions(&s, env.Options{Environment: environment}); err != nil {
		return s, explain(err)
	}
	return s, s.check()
}

// RememberedLonger is how much longer consumers must remember events than streams and
// outboxes keep them.
const RememberedLonger = 24 * time.Hour

const (
	minStreamBytes = 1 << 20
	minFailed      = 24 * time.Hour // so that a person can look
)

func (s Settings) check() error {
	var bad []string
	want := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Sprintf(format, args...))
		}
	}
	bad = append(bad, outOfBounds(s)...)
	want(s.NotificationChannel == "log" || s.NotificationChannel == "webhook", "NOTIFICATION_CHANNEL must be log or webhook, is %q", s.NotificationChannel)
	want(s.NotificationChannel != "webhook" || len(s.WebhookURLs) > 0 && len(s.WebhookSecrets) > 0, "NOTIFICATION_CHANNEL=webhook needs WEBHOOK_URLS and WEBHOOK_SECRETS")
	want(s.WebhookTimeout*2 < s.LeaseDuration, "WEBHOOK_TIMEOUT must be below half of LEASE_DURATION, is %s of %s", s.WebhookTimeout, s.LeaseDuration)
	want(s.Schedule == "auto" || s.Schedule == "off", "SCHEDULE must be auto or off, is %q", s.Schedule)
	want(s.LeaseBackoffBase <= s.LeaseBackoffCap, "LEASE_BACKOFF_BASE must not be above LEASE_BACKOFF_CAP, is %s of %s", s.LeaseBackoffBase, s.LeaseBackoffCap)
	want(s.DeliveryBackoffCap == 0 || s.DeliveryBackoffCap >= s.LeaseBackoffBase, "DELIVERY_BACKOFF_CAP must be 0s or at least LEASE_BACKOFF_BASE, is %s and %s", s.DeliveryBackoffCap, s.LeaseBackoffBase)
	want(s.StreamMaxBytes == -1 || s.StreamMaxBytes >= minStreamBytes, "STREAM_MAX_BYTES must be -1 or at least %d, is %d", minStreamBytes, s.StreamMaxBytes)
	want(s.StreamReplicas%2 == 1, "STREAM_REPLICAS must be 1, 3 or 5, is %d", s.StreamReplicas)
	want(s.OutboxRetention > s.ReconcileAfter, "OUTBOX_RETENTION must exceed RECONCILE_AFTER, is %s of %s: what the broker lost could not be published again", s.OutboxRetention, s.ReconcileAfter)
	want(s.FailedRetention == 0 || s.FailedRetention >= minFailed, "FAILED_RETENTION must be 0s or at least %s, is %s", minFailed, s.FailedRetention)
	want(s.ProcessedRetention >= s.StreamMaxAge+RememberedLonger, "PROCESSED_RETENTION must exceed STREAM_MAX_AGE by 24h, is %s of %s: users would be notified of old events again", s.ProcessedRetention, s.StreamMaxAge)
	want(s.ProcessedRetention >= s.OutboxRetention+RememberedLonger, "PROCESSED_RETENTION must exceed OUTBOX_RETENTION by 24h, is %s of %s: users would be notified of old events again", s.ProcessedRetention, s.OutboxRetention)
	want(s.TickLinger <= s.TickBudget, "TICK_LINGER must be 0s to TICK_BUDGET, is %s of %s", s.TickLinger, s.TickBudget)
	want(s.SessionIdle <= s.SessionLifetime, "SESSION_IDLE must be 1m to SESSION_LIFETIME, is %s of %s", s.SessionIdle, s.SessionLifetime)
	want(s.OIDCAudience != s.OIDCClientID, "OIDC_AUDIENCE must not be OIDC_CLIENT_ID, is %q: ID tokens would be taken for access tokens", s.OIDCAudience)
	want(slices.Contains(s.OIDCScopes, "openid"), "OIDC_SCOPES must have openid")
	want(isOrigin(s.PublicURL), "GATEWAY_URL must be http:// or https:// and a host, nothing after it, is %q", s.PublicURL)
	want(s.Allocator == "fixed" || s.Allocator == "agones", "ALLOCATOR must be fixed or agones, is %q", s.Allocator)
	want(s.Allocator != "agones" || s.AgonesURL != "" && s.AgonesFleet != "", "ALLOCATOR=agones needs AGONES_URL and AGONES_FLEET")
	want(s.TransferBroker == JetStream || s.TransferBroker == RabbitMQ, "TRANSFER_BROKER must be jetstream or rabbitmq, is %q", s.TransferBroker)
	want(s.RabbitMQURL == "" || isAMQP(s.RabbitMQURL), "RABBITMQ_URL must be an amqp:// or amqps:// URL with a host") // not its text: it holds the password
	want(s.OTLPProtocol == "http/protobuf", "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf, is %q: use the collector's port 4318", s.OTLPProtocol)
	for name, exporter := range map[string]string{"OTEL_TRACES_EXPORTER": s.TracesExporter, "OTEL_METRICS_EXPORTER": s.MetricsExporter} {
		want(exporter == "otlp" || exporter == "none", "%s must be otlp or none, is %q", name, exporter)
	}
	for name, endpoint := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": s.OTLPEndpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": s.OTLPTracesEndpoint, "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": s.OTLPMetricsEndpoint,
	} {
		want(endpoint == "" || isHTTP(endpoint), "%s must be an http:// or https:// URL with a host", name) // not its text: it may hold a token
	}
	want(slices.Contains(samplers, strings.TrimPrefix(s.TracesSampler, ParentBased)), "OTEL_TRACES_SAMPLER must be one of %s, with or without %s before it, is %q", strings.Join(samplers, ", "), ParentBased, s.TracesSampler)
	want(s.TracesRatio() >= 0 && s.TracesRatio() <= 1, "OTEL_TRACES_SAMPLER_ARG must be 0 to 1, is %q", s.TracesSamplerArg)
	want(s.RabbitMQQueue == "quorum" || s.RabbitMQQueue == "classic", "RABBITMQ_QUEUE must be quorum or classic, is %q", s.RabbitMQQueue)
	if len(bad) > 0 {
		return errors.New("settings: " + strings.Join(bad, "; "))
	}
	return nil
}

func isAMQP(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "amqp" || u.Scheme == "amqps") && u.Hostname() != ""
}

// isOrigin reports whether address is a scheme and a host only.
func isOrigin(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.Path == "" && u.RawQuery == "" && u.Fragment == ""
}

func isHTTP(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// Values of OTEL_TRACES_SAMPLER; ParentBased may stand before each of the others.
const (
	ParentBased = "parentbased_"
	AlwaysOn    = "always_on"
	AlwaysOff   = "always_off"
	Ratio       = "traceidratio"
)

var samplers = []string{AlwaysOn, AlwaysOff, Ratio}

// TracesRatio returns OTEL_TRACES_SAMPLER_ARG, -1 if it is no number.
func (s Settings) TracesRatio() float64 {
	ratio, err := strconv.ParseFloat(s.TracesSamplerArg, 64)
	if err != nil || math.IsNaN(ratio) {
		return -1
	}
	return ratio
}

// TracesURL returns where traces are sent, "" if nowhere.
func (s Settings) TracesURL() string {
	return s.otlp(s.TracesExporter, s.OTLPTracesEndpoint, "/v1/traces")
}

// MetricsURL returns where metrics are sent, "" if nowhere.
func (s Settings) MetricsURL() string {
	return s.otlp(s.MetricsExporter, s.OTLPMetricsEndpoint, "/v1/metrics")
}

func (s Settings) otlp(exporter, own, path string) string {
	switch {
	case s.OTLPOff || exporter == "none":
		return ""
	case own != "" || s.OTLPEndpoint == "":
		return own
	}
	return strings.TrimSuffix(s.OTLPEndpoint, "/") + path
}

// SessionRedis returns the URL of the Redis of sessions and limits, and whether it
// is a cluster.
func (s Settings) SessionRedis() (url string, cluster bool) {
	if s.SessionRedisURL != "" {
		return s.SessionRedisURL, s.SessionRedisCluster
	}
	return s.RedisURL, s.RedisCluster
}

// Database returns the URL of a domain's database, or of entitlement_cleanup's.
func (s Settings) Database(domain string) string {
	if domain == "entitlement_cleanup" {
		return cmp.Or(s.CleanupDatabaseURL, s.Database("entitlement"))
	}
	own := map[string]string{
		"account":      s.AccountDatabaseURL,
		"entitlement":  s.EntitlementDatabaseURL,
		"notification": s.NotificationDatabaseURL,
		"transfer":     s.TransferDatabaseURL,
	}[domain]
	if own != "" {
		return own
	}
	return s.DatabaseURL
}

// explain names the variable, where the library names the field.
func explain(err error) error {
	var bad env.ParseError
	if !errors.As(err, &bad) {
		return fmt.Errorf("settings: %w", err)
	}
	name := bad.Name
	if field, ok := reflect.TypeFor[Settings]().FieldByName(bad.Name); ok {
		name = field.Tag.Get("env")
	}
	return fmt.Errorf("settings: %s is not a valid %s: %w", name, bad.Type, bad.Err)
}
