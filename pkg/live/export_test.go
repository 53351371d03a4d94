package live

// IncomingSize and OutgoingSize are how many nudges may wait to be passed on and sent.
const (
	IncomingSize = incomingSize
	OutgoingSize = outgoingSize
)

// CloseWait bounds Close.
const CloseWait = closeWait

// Stall keeps the hub from passing nudges to its listeners until release is called.
func (h *Hub) Stall() (release func()) {
	h.listeners.mutex.Lock()
	return h.listeners.mutex.Unlock
}

// Waiting returns how many nudges wait to be passed on, and whether later ones were
// dropped.
func (h *Hub) Waiting() (nudges int, missed bool) { return len(h.incoming), len(h.missed) > 0 }
