package system

import (
	"sync"
)

// AtOnce runs do n times at the same time.
func AtOnce(n int, do func(i int)) {
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		group.Go(func() { <-start; do(i) })
	}
	close(start)
	group.Wait()
}
