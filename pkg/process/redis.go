package process

import (
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Limits of a Redis call. A Redis that hangs must not hold up requests that can be
// answered without it.
const (
	redisDialTimeout = time.Second
	redisCallTimeout = time.Second
	redisRedirects   = 3
	redisLookAgain   = time.Second // which node of a cluster has which slots
)

// Redis returns the client of the Redis that holds the queues. That of a single server
// sends no command twice by itself: a script's first answer would be lost.
func (p *Process) Redis() (redis.UniversalClient, error) {
	return p.redisAt("REDIS_URL", p.Settings.RedisURL, p.Settings.RedisCluster)
}

// SessionRedis returns the client of the Redis that holds what the gateway keeps:
// sessions, sign-ins in progress, limits and open streams. It is that of Redis where
// both have one URL.
func (p *Process) SessionRedis() (redis.UniversalClient, error) {
	url, cluster := p.Settings.SessionRedis()
	return p.redisAt("SESSION_REDIS_URL", url, cluster)
}

func (p *Process) redisAt(setting, url string, cluster bool) (redis.UniversalClient, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if client, ok := p.redis[url]; ok {
		return client, nil
	}
	logging.Disable() // it would print each failed dial; errors reach the caller
	client, err := clientOf(url, cluster)
	if err != nil {
		// Its text would hold the password.
		return nil, errors.New(setting + " is not a redis:// or rediss:// URL")
	}
	if err := p.observeRedis(client, setting); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	p.redis[url] = client
	return client, nil
}

// clientOf returns a client of the Redis, of the Redis Cluster, or of the primary that
// Sentinels name, if the URL has their master_name.
func clientOf(url string, cluster bool) (redis.UniversalClient, error) {
	switch {
	case cluster:
		o, err := redis.ParseClusterURL(url)
		if err != nil {
			return nil, err
		}
		// Replicas may not have yet what was written.
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		o.DialerRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 1, redisDialTimeout, redisCallTimeout, redisCallTimeout
		o.PoolTimeout, o.ContextTimeoutEnabled = redisCallTimeout, true
		// The cluster client sends a command again if a node answers that another one has
		// its slot, or does not answer. The scripts tolerate that.
		o.MaxRedirects, o.MaxRetries = redisRedirects, -1
		// A node that does not answer any more tells nobody which one has its slots now.
		o.ClusterStateReloadInterval = redisLookAgain
		return redis.NewClusterClient(o), nil
	case strings.Contains(url, "master_name="):
		o, err := redis.ParseFailoverURL(url)
		if err != nil {
			return nil, err
		}
		o.ReplicaOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		if o.TLSConfig != nil {
			o.TLSConfig.ServerName = "" // it was the first Sentinel's: each has its own
		}
		o.MaxRetries, o.DialerRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout = -1, 1, redisDialTimeout, redisCallTimeout, redisCallTimeout
		o.PoolTimeout, o.ContextTimeoutEnabled = redisCallTimeout, true
		return redis.NewFailoverClient(o), nil
	}
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	o.MaxRetries, o.DialerRetries, o.DialTimeout, o.ReadTimeout, o.WriteTimeout = -1, 1, redisDialTimeout, redisCallTimeout, redisCallTimeout
	o.PoolTimeout, o.ContextTimeoutEnabled = redisCallTimeout, true
	return redis.NewClient(o), nil
}
