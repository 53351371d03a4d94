package postgres

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// registerTypes adds uuid.UUID to a connection: as its 16 bytes instead of a
// detour through text (40 times faster, and arrays of them are in every hot
// statement), and as the type of a parameter where the server is not asked for
// it (POSTGRES_EXEC_MODE exec and simple_protocol).
func registerTypes(_ context.Context, conn *pgx.Conn) error {
	types := conn.TypeMap()
	types.TryWrapEncodePlanFuncs = append([]pgtype.TryWrapEncodePlanFunc{wrapUUID}, types.TryWrapEncodePlanFuncs...)
	types.RegisterDefaultPgType(uuid.UUID{}, "uuid")
	types.RegisterDefaultPgType([]uuid.UUID{}, "_uuid")
	return nil
}

func wrapUUID(v any) (pgtype.WrappedEncodePlanNextSetter, any, bool) {
	u, ok := v.(uuid.UUID)
	return &uuidPlan{}, pgtype.UUID{Bytes: u, Valid: true}, ok
}

// uuidPlan encodes a uuid.UUID as a pgtype.UUID.
type uuidPlan struct{ next pgtype.EncodePlan }

func (p *uuidPlan) SetNext(next pgtype.EncodePlan) { p.next = next }

func (p *uuidPlan) Encode(v any, buffer []byte) ([]byte, error) {
	return p.next.Encode(pgtype.UUID{Bytes: v.(uuid.UUID), Valid: true}, buffer)
}
