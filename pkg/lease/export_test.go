package lease

// ClaimSQL is the statement that claims, for tests that look at its plan.
func (q *Queue[T]) ClaimSQL() string { return q.claimSQL }

// Statements are all of a queue's.
func (q *Queue[T]) Statements() []string {
	return []string{q.claimSQL, q.finishSQL, q.retrySQL, q.returnSQL, q.extendSQL, q.giveUpSQL}
}
