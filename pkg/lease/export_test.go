package lease

// ClaimSQL returns the statement that claims, for tests of its plan.
func (q *Queue[T]) ClaimSQL() string { return q.sql.claim }

// Statements returns all statements of a queue.
func (q *Queue[T]) Statements() []string {
	return []string{q.sql.claim, q.sql.finish, q.sql.retry, q.sql.giveBack, q.sql.giveUp}
}

// Place and ReadPlace write and read where a list of FAILED rows continues.
var (
	Place     = place
	ReadPlace = readPlace
)
