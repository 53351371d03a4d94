package lease

// Report counts what became of the rows, or messages, that a worker took on. It
// is what a tick answers.
type Report struct {
	Claimed   int  `json:"claimed"`
	Done      int  `json:"done"`
	Retried   int  `json:"retried"`
	Dead      int  `json:"dead"`
	LostLease int  `json:"lost_lease"`
	More      bool `json:"more"` // there is work left
}

// Add counts a further step; what is left is what that one left.
func (r *Report) Add(step Report) {
	r.Claimed += step.Claimed
	r.Done += step.Done
	r.Retried += step.Retried
	r.Dead += step.Dead
	r.LostLease += step.LostLease
	r.More = step.More
}

// Beside counts what was done elsewhere at the same time: there is more while
// either has more.
func (r *Report) Beside(other Report) {
	more := r.More || other.More
	r.Add(other)
	r.More = more
}
