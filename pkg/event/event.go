// Package event converts outbox records to broker messages, and back. Outbox payloads are
// JSON (readable in SQL), messages are protobuf (proto/), and both have the same fields,
// so the conversion is generic: a new event is one message in proto/ and one line in
// kinds.
package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	entitlementv1 "github.com/miniserversystem/miniserver/proto/miniserver/entitlement/v1"
	matchmakingv1 "github.com/miniserversystem/miniserver/proto/miniserver/matchmaking/v1"
	transferv1 "github.com/miniserversystem/miniserver/proto/miniserver/transfer/v1"
)

// ErrUnreadable means that a retry cannot help: the payload or message does not match its
// type.
var ErrUnreadable = errors.New("unreadable event")

// Subjects of the broker.
const (
	EntitlementSubject = "entitlement.events"
	MatchmakingSubject = "matchmaking.events"
	TransferSubject    = "transfer.events"
	SettledSubject     = "transfer.settled"
)

// Subjects lists every subject that events are published to.
var Subjects = []string{EntitlementSubject, MatchmakingSubject, TransferSubject, SettledSubject}

// ForPeople lists the subjects whose events users are notified of.
var ForPeople = []string{EntitlementSubject, MatchmakingSubject, SettledSubject}

// kind is the subject and message of an event type.
type kind struct {
	message proto.Message
	subject string
	source  string
}

// kinds maps the short event type (the spec's, and the outbox's) to its kind.
var kinds = map[string]kind{
	"EntitlementGranted": {&entitlementv1.EntitlementGranted{}, EntitlementSubject, "/miniserver/entitlement"},
	"EntitlementRevoked": {&entitlementv1.EntitlementRevoked{}, EntitlementSubject, "/miniserver/entitlement"},
	"TransferCompleted":  {&transferv1.TransferCompleted{}, TransferSubject, "/miniserver/transfer"},
	"TransferSettled":    {&transferv1.TransferSettled{}, SettledSubject, "/miniserver/transfer"},
	"MatchMade":          {&matchmakingv1.MatchMade{}, MatchmakingSubject, "/miniserver/matchmaking"},
}

// Record is an event as an outbox holds it.
type Record struct {
	ID          string // event_id, a UUID
	Type        string // short: EntitlementGranted
	Key         string // aggregate key
	OccurredAt  time.Time
	Traceparent string // W3C; may be empty
	Payload     []byte // JSON with the fields of the type's protobuf message
}

// Message is an event as published.
type Message struct {
	ID          string
	Type        string // full: miniserver.entitlement.v1.EntitlementGranted
	Source      string // CloudEvents source
	Subject     string // the broker's subject, such as entitlement.events
	Key         string // CloudEvents subject
	Time        time.Time
	Traceparent string
	Data        []byte // protobuf
	// Dedup, when not empty, replaces ID in the broker's own deduplication.
	Dedup string
}

// ShortType is the last part of the type.
func (m Message) ShortType() string { return m.Type[strings.LastIndexByte(m.Type, '.')+1:] }

// Encode makes the message of a record. An error wraps ErrUnreadable: the type
// is unknown, or the payload is not that type's.
func Encode(r Record) (Message, error) {
	k, ok := kinds[r.Type]
	if !ok {
		return Message{}, fmt.Errorf("%w: type %q is not known", ErrUnreadable, r.Type)
	}
	message := k.message.ProtoReflect().New().Interface()
	// A newer writer may add fields; an older relay publishes those that it knows.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(r.Payload, message); err != nil {
		return Message{}, fmt.Errorf("%w: payload: %w", ErrUnreadable, err)
	}
	if id := text(message, "event_id"); id != r.ID {
		return Message{}, fmt.Errorf("%w: the payload's event_id %q is not its row's", ErrUnreadable, id)
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		return Message{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return Message{
		ID:          r.ID,
		Type:        string(message.ProtoReflect().Descriptor().FullName()),
		Source:      k.source,
		Subject:     k.subject,
		Key:         r.Key,
		Time:        r.OccurredAt,
		Traceparent: r.Traceparent,
		Data:        data,
	}, nil
}

// Decode makes the record of a message. An error wraps ErrUnreadable.
func Decode(m Message) (Record, error) {
	k, ok := kinds[m.ShortType()]
	if !ok || string(k.message.ProtoReflect().Descriptor().FullName()) != m.Type {
		return Record{}, fmt.Errorf("%w: type %q is not known", ErrUnreadable, m.Type)
	}
	message := k.message.ProtoReflect().New().Interface()
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(m.Data, message); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if id := text(message, "event_id"); id != m.ID {
		return Record{}, fmt.Errorf("%w: the event_id %q inside is not the message's", ErrUnreadable, id)
	}
	payload, err := json.Marshal(fields(message.ProtoReflect()))
	if err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return Record{ID: m.ID, Type: m.ShortType(), Key: m.Key, OccurredAt: m.Time, Traceparent: m.Traceparent, Payload: payload}, nil
}

func text(m proto.Message, field protoreflect.Name) string {
	r := m.ProtoReflect()
	if fd := r.Descriptor().Fields().ByName(field); fd != nil {
		return r.Get(fd).String()
	}
	return ""
}
