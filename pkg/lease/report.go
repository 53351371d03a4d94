package lease

// Report counts the results of the rows, or messages, that a worker claimed. A tick
// answers with it.
type Report struct {
	Claimed   int  `json:"claimed"`
	Done      int  `json:"done"`
	Retried   int  `json:"retried"`
	Dead      int  `json:"dead"`
	LostLease int  `json:"lost_lease"`
	More      bool `json:"more"` // there is work left
}

// Add adds a later step's report, whose More replaces the earlier one.
func (r *Report) Add(step Report) {
	r.Claimed += step.Claimed
	r.Done += step.Done
	r.Retried += step.Retried
	r.Dead += step.Dead
	r.LostLease += step.LostLease
	r.More = step.More
}

// Merge adds the report of work done at the same time: there is more while
// either has more.
func (r *Report) Merge(other Report) {
	more := r.More || other.More
	r.Add(other)
	r.More = more
}
