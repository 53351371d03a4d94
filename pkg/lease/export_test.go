package lease

// ClaimSQL is the statement that claims, for tests that look at its plan.
func (q *Queue[T]) ClaimSQL() string { return q.sql.claim }

// Statements are all of a queue's.
func (q *Queue[T]) Statements() []string {
	return []string{q.sql.claim, q.sql.finish, q.sql.retry, q.sql.giveBack, q.sql.extend, q.sql.giveUp}
}
