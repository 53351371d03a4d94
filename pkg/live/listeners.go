package live

import "sync"

// listeners has the listeners of each user. Users whose changes the connection does not
// know yet are touched.
type listeners struct {
	mutex   sync.Mutex
	of      map[string]map[chan struct{}]bool
	touched map[string]bool
	changed chan struct{} // one token when something was touched
}

func newListeners() listeners {
	return listeners{of: map[string]map[chan struct{}]bool{}, touched: map[string]bool{}, changed: make(chan struct{}, 1)}
}

func (l *listeners) add(userID string) chan struct{} {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	channel := make(chan struct{}, 1)
	if l.of[userID] == nil {
		l.of[userID] = map[chan struct{}]bool{}
	}
	l.of[userID][channel] = true
	l.touched[userID] = true
	signal(l.changed)
	return channel
}

func (l *listeners) remove(userID string, channel chan struct{}) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.of[userID], channel)
	if len(l.of[userID]) == 0 {
		delete(l.of, userID)
		l.touched[userID] = true
		signal(l.changed)
	}
}

// take returns the users that were touched since the last take, and whether
// anyone listens to them.
func (l *listeners) take() map[string]bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	users := l.touched
	l.touched = map[string]bool{}
	for userID := range users {
		users[userID] = len(l.of[userID]) > 0
	}
	return users
}

// touch makes take return all users, because a new connection has no subscriptions.
func (l *listeners) touch() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for userID := range l.of {
		l.touched[userID] = true
	}
	signal(l.changed)
}

func (l *listeners) nudge(userID string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for channel := range l.of[userID] {
		signal(channel)
	}
}

// signal puts a token into channel, unless there is one.
func signal(channel chan struct{}) {
	select {
	case channel <- struct{}{}:
	default:
	}
}
