package session

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// tombstoneLifetime is the longest time from the issuer's answer to a sign-in to
	// Create.
	tombstoneLifetime = time.Minute
	// endBatch is the number of sessions ended in one round trip.
	endBatch = 500
	// minOnce is the shortest memory of Once.
	minOnce = time.Second
)

func endedKey(issuer, sid string) string { return keyPrefix + "ended:{" + digest(issuer, sid) + "}" }

// EndSID ends every session that belongs to one session at the issuer, without their
// cookies, and returns their number. For a minute it also prevents a sign-in of that SID
// in progress from being stored. After an error some sessions may have ended, and the
// call may be repeated. An empty sid ends nothing.
func (s *Store) EndSID(ctx context.Context, issuer, sid string) (ended int, err error) {
	if sid == "" {
		return 0, nil
	}
	if err := s.client.Set(ctx, endedKey(issuer, sid), "1", tombstoneLifetime).Err(); err != nil {
		return 0, unreachable("remember a sign-out", err)
	}
	return s.end(ctx, sidKey(issuer, sid))
}

// EndSubject is EndSID for all sessions of one subject. It leaves no tombstone: the
// subject can sign in again at once.
func (s *Store) EndSubject(ctx context.Context, issuer, subject string) (ended int, err error) {
	return s.end(ctx, subjectKey(issuer, subject))
}

// Count returns how many sessions of a subject may be alive: those that ended early by the
// idle limit count until their absolute one.
func (s *Store) Count(ctx context.Context, issuer, subject string) (int, error) {
	n, err := s.client.ZCard(ctx, subjectKey(issuer, subject)).Result()
	if err != nil {
		return 0, unreachable("count sessions", err)
	}
	return int(n), nil
}

// end ends the sessions of an index, and empties it.
func (s *Store) end(ctx context.Context, index string) (ended int, err error) {
	for {
		ids, err := s.client.ZRange(ctx, index, 0, endBatch-1).Result()
		if err != nil {
			return ended, unreachable("find the sessions to end", err)
		}
		if len(ids) == 0 {
			return ended, nil
		}
		n, absent, err := s.drop(ctx, ids)
		ended += n
		if err != nil {
			return ended, unreachable("end sessions", err)
		}
		// Only now, so that a crash before this loses no session.
		entries := make([]any, len(ids))
		for i, id := range ids {
			entries[i] = id
		}
		if err := s.client.ZRem(ctx, index, entries...).Err(); err != nil {
			return ended, unreachable("empty an index of sessions", err)
		}
		// A session that was listed but not yet stored may have been stored since, and
		// may have checked the index before it was removed from it.
		n, _, err = s.drop(ctx, absent)
		ended += n
		if err != nil {
			return ended, unreachable("end sessions", err)
		}
	}
}

// drop deletes the sessions of ids, and returns the number of deleted and the ids of
// missing ones.
func (s *Store) drop(ctx context.Context, ids []string) (dropped int, absent []string, err error) {
	pipe := s.client.Pipeline()
	deleted := make([]*redis.IntCmd, len(ids))
	for i, id := range ids {
		deleted[i] = pipe.Del(ctx, sessionKey(id))
	}
	err = execute(ctx, pipe)
	for i, id := range ids {
		if deleted[i].Val() > 0 {
			dropped++
		} else {
			absent = append(absent, id)
		}
	}
	return dropped, absent, err
}

// Once calls do, unless a call with id succeeded within the given time before, a second
// at least. A failed call may be repeated: a crash between do and its record only causes
// do to run again. For a logout token id is its issuer and jti.
func (s *Store) Once(ctx context.Context, id string, within time.Duration, do func() error) error {
	key := keyPrefix + "once:{" + digest(id) + "}"
	done, err := s.client.Exists(ctx, key).Result()
	if err != nil {
		return unreachable("look for what was done", err)
	}
	if done > 0 {
		return nil
	}
	if err := do(); err != nil {
		return err
	}
	if err := s.client.Set(ctx, key, "1", max(within, minOnce)).Err(); err != nil {
		return unreachable("remember what was done", err)
	}
	return nil
}
