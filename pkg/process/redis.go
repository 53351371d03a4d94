package process

import (
	"errors"
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
)

// Redis returns the client of the Redis that holds the queues. It never sends a command
// twice by itself: scripts are not harmless when run twice.
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
	options, err := redis.ParseURL(url)
	if err != nil {
		// Its text would hold the password.
		return nil, errors.New(setting + " is not a redis:// or rediss:// URL")
	}
	options.MaxRetries, options.DialerRetries = -1, 1
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = redisDialTimeout, redisCallTimeout, redisCallTimeout
	options.PoolTimeout = redisCallTimeout
	options.ContextTimeoutEnabled = true
	logging.Disable() // it would print each failed dial; errors reach the caller
	var client redis.UniversalClient
	if cluster {
		client = redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{options.Addr}, Username: options.Username, Password: options.Password, TLSConfig: options.TLSConfig,
			DialerRetries: options.DialerRetries, DialTimeout: options.DialTimeout, ReadTimeout: options.ReadTimeout,
			WriteTimeout: options.WriteTimeout, PoolTimeout: options.PoolTimeout, ContextTimeoutEnabled: true,
			// The cluster client sends a command again if a node answers that another one has
			// its slot, or does not answer. The scripts tolerate that.
			MaxRedirects: redisRedirects, MaxRetries: options.MaxRetries,
		})
	} else {
		client = redis.NewClient(options)
	}
	if err := p.observeRedis(client, setting); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	p.redis[url] = client
	return client, nil
}
