package queue

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/check"
)

// ParseRedisURL parses the URL of a Redis, a socket, Sentinels or a Cluster:
//
//	redis://[user:password@]host[:6379][/db]
//	rediss://…                                   with TLS
//	unix:///path/to/socket[?db=N]
//	redis+sentinel://[user:password@]host[:26379],host…/master[/db]
//	redis+cluster://[user:password@]host[:6379],host…
//
// rediss+sentinel and rediss+cluster use TLS. Errors never contain the password.
func ParseRedisURL(text string) (*redis.UniversalOptions, error) {
	fail := func(format string, args ...any) (*redis.UniversalOptions, error) {
		return nil, fmt.Errorf("redis URL: "+format, args...)
	}
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		return fail("it does not begin with redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://")
	}
	options := &redis.UniversalOptions{}
	base, mode, _ := strings.Cut(scheme, "+")
	switch base {
	case "redis", "unix":
	case "rediss":
		options.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return fail("scheme %s is not supported: use redis, rediss, unix, redis+sentinel or redis+cluster", check.Quote(scheme))
	}
	credentials, hosts := "", rest
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		credentials, hosts = rest[:at], rest[at+1:]
	}
	if credentials != "" {
		user, password, _ := strings.Cut(credentials, ":")
		var err1, err2 error
		options.Username, err1 = url.PathUnescape(user)
		options.Password, err2 = url.PathUnescape(password)
		if errors.Join(err1, err2) != nil {
			return fail("the user or password is not percent-encoded")
		}
	}
	hosts, query, _ := strings.Cut(hosts, "?")
	if values, err := url.ParseQuery(query); err != nil || len(values) > 1 || (len(values) == 1 && !values.Has("db")) {
		return fail("the only parameter is db")
	} else if values.Has("db") {
		if !readDB(values.Get("db"), options) {
			return fail("database %s is not a number of 0 or more", check.Quote(values.Get("db")))
		}
	}
	if base == "unix" {
		if mode != "" || !strings.HasPrefix(hosts, "/") {
			return fail("unix:// needs the path of a socket, such as unix:///run/redis.sock")
		}
		options.Addrs = []string{hosts}
		return options, nil
	}
	list, path, _ := strings.Cut(hosts, "/")
	port := "6379"
	switch mode {
	case "":
	case "cluster":
		options.IsClusterMode = true
		if path != "" {
			return fail("a cluster has no databases")
		}
	case "sentinel":
		port = "26379"
		options.MasterName, path, _ = strings.Cut(path, "/")
		if options.MasterName == "" {
			return fail("the name of the master is missing: write redis+sentinel://host/master")
		}
	default:
		return fail("scheme %s is not supported: use redis, rediss, unix, redis+sentinel or redis+cluster", check.Quote(scheme))
	}
	if path != "" && !readDB(path, options) {
		return fail("database %s is not a number of 0 or more", check.Quote(path))
	}
	for host := range strings.SplitSeq(list, ",") {
		if host == "" {
			return fail("a host is empty")
		}
		name, hostPort, err := net.SplitHostPort(host)
		if err != nil {
			name, hostPort = strings.Trim(host, "[]"), port
		}
		if n, err := strconv.Atoi(hostPort); err != nil || n < 1 || n > 65535 {
			return fail("port %s must be 1 to 65535", check.Quote(hostPort))
		}
		options.Addrs = append(options.Addrs, net.JoinHostPort(name, hostPort))
	}
	if mode == "" && len(options.Addrs) > 1 {
		return fail("several hosts need redis+sentinel:// or redis+cluster://")
	}
	return options, nil
}

func readDB(text string, options *redis.UniversalOptions) bool {
	n, err := strconv.Atoi(text)
	options.DB = n
	return err == nil && n >= 0
}
