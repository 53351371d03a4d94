package auth_test

import (
	"testing"
	"time"

	"github.com/miniserversystem/miniserver/pkg/auth"
)

func TestFresh(t *testing.T) {
	t.Parallel()
	for age, fresh := range map[time.Duration]bool{
		0: true, 4 * time.Minute: true, 6 * time.Minute: false, -30 * time.Second: true, -time.Hour: false,
	} {
		if err := (auth.Identity{AuthTime: time.Now().Add(-age)}).Fresh(); (err == nil) != fresh {
			t.Errorf("signed in %s ago: %v, want fresh %v", age, err, fresh)
		}
	}
	if (auth.Identity{}).Fresh() == nil {
		t.Error("an identity of unknown age is fresh")
	}
}
