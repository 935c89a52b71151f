package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/check"
	"github.com/headgate/headgate/internal/program"
	"github.com/headgate/headgate/queue/inspect"
)

// printAnswer prints what the HTTP API answers to a GET, so that --json and the API say the same.
// The words of the path are escaped.
func printAnswer(ctx context.Context, out io.Writer, client redis.UniversalClient, query url.Values, path ...string) error {
	return printChange(ctx, out, client, "", http.MethodGet, query, nil, path...)
}

// printChange prints what the HTTP API answers to a request of an actor.
func printChange(ctx context.Context, out io.Writer, client redis.UniversalClient, actor, method string, query url.Values, body any, path ...string) error {
	text, err := answer(ctx, client, actor, method, query, body, path...)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", text)
	return err
}

func answer(ctx context.Context, client redis.UniversalClient, actor, method string, query url.Values, body any, path ...string) (json.RawMessage, error) {
	file, err := auditFile()
	if err != nil {
		return nil, err
	}
	a, err := api.New(api.Config{Redis: client, Audit: file.Add})
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	for _, word := range path {
		b.WriteString("/" + url.PathEscape(word))
	}
	text, err := a.Do(ctx, actor, method, b.String(), query, body)
	if problem, ok := errors.AsType[*api.LocalError](err); ok && problem.Partly() {
		return nil, partialError{err}
	} else if ok && problem.Status < http.StatusInternalServerError {
		return nil, &program.UsageError{Err: err}
	}
	return text, err
}

// queueOf returns the queue of a job: name, or if that is "" the one queue that has a job of this
// id.
func queueOf(ctx context.Context, client redis.UniversalClient, name, id string) (string, error) {
	if name != "" {
		names, err := selected(ctx, client, name)
		if err != nil {
			return "", err
		}
		return names[0], nil
	}
	found, err := inspect.QueuesOf(ctx, client, id)
	switch {
	case err != nil:
		return "", err
	case len(found) == 0:
		hint := ""
		if !strings.Contains(id, ":") {
			hint = "; the id of a job with a key is TENANT:KEY"
		}
		return "", fmt.Errorf("no queue has a job %s: it never existed, or it was deleted when it was done%s", check.Quote(id), hint)
	case len(found) > 1:
		return "", &program.UsageError{Err: fmt.Errorf("--queue: the queues %s have a job %s each", strings.Join(found, ", "), check.Quote(id))}
	}
	return found[0], nil
}
