package transfer

import "time"

// SetStep replaces stepTimeout, for tests in which a busy machine must not be a fault.
func (s *Store) SetStep(d time.Duration) { s.setStep(d) }
