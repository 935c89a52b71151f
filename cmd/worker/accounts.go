package main

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/breaker"
	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/credentials"
	"github.com/headgate/headgate/queue"
)

// maxAccounts is the maximum number of clients for tenants' own accounts, per kind. A client
// is cheap to create, but its open connections are not.
const maxAccounts = 256

// accounts caches a client for each of the most recently used credentials.
type accounts[C interface{ Close() }] struct {
	open func(*credentials.Secrets) (C, error)

	mu    sync.Mutex
	known map[string]*list.Element // by the secrets' ID
	order list.List                // of account[C], most recently used first
}

type account[C any] struct {
	id     string
	tenant string // the first tenant that used it
	client C
}

func newAccounts[C interface{ Close() }](open func(*credentials.Secrets) (C, error)) *accounts[C] {
	return &accounts[C]{open: open, known: map[string]*list.Element{}}
}

// of returns the client of an account, and creates it if necessary. It may close the least
// recently used client, which does not end calls of that client.
func (a *accounts[C]) of(secrets *credentials.Secrets, tenant string) (C, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.known[secrets.ID]; ok {
		a.order.MoveToFront(known)
		return known.Value.(account[C]).client, nil
	}
	client, err := a.open(secrets)
	if err != nil {
		return client, err
	}
	a.known[secrets.ID] = a.order.PushFront(account[C]{secrets.ID, tenant, client})
	if a.order.Len() > maxAccounts {
		oldest := a.order.Remove(a.order.Back()).(account[C])
		delete(a.known, oldest.id)
		oldest.client.Close()
	}
	return client, nil
}

// quotas returns the known limits of the accounts, most recently used first.
func (a *accounts[C]) quotas() (all []api.Quota) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e := a.order.Front(); e != nil; e = e.Next() {
		known := e.Value.(account[C])
		all = append(all, quotasOf(known.tenant, known.client)...)
	}
	return all
}

// Close closes all cached clients.
func (a *accounts[C]) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e := a.order.Front(); e != nil; e = e.Next() {
		e.Value.(account[C]).client.Close()
	}
}

// caller makes the calls of a kind with the account of the job's tenant, or with the worker's
// account if the tenant has none.
type caller[C interface{ Close() }] struct {
	kind     string
	store    *credentials.Store
	own      *accounts[C]
	common   *C // nil: the worker has no account
	failures *breaker.Breaker
}

// do makes one call. If the credentials of the tenant cannot be used, or neither the tenant
// nor the worker has an account, it makes no call and returns an error that holds the
// tenant's jobs.
func (c *caller[C]) do(ctx context.Context, call clients.Call, send func(clients.Call, C) error) error {
	secrets, err := c.store.For(c.kind, call.Tenant)
	if err != nil {
		return clients.Exhausted(clients.KeyPause, err)
	}
	if secrets == nil {
		job, _ := queue.Current(ctx)
		if call.OwnOnly = job.Account() == queue.SharedAccount; job.Account() == queue.OwnAccount {
			return clients.Permanent(clients.NotCalled(fmt.Errorf("tenant %s has no %s account of its own, and the key that enqueued the job may not use the worker's: give the tenant credentials, or the key shared_account",
				clients.Printable(call.Tenant, 100), c.kind)))
		}
		if c.common == nil {
			return clients.Exhausted(clients.KeyPause, &credentials.HeldError{Kind: c.kind, Tenant: clients.Printable(call.Tenant, 100), Reason: "neither it nor the worker has any"})
		}
		return c.failures.Note(ctx, sharedAccount, clients.OfAccount, probing(ctx), send(call, *c.common))
	}
	client, err := c.own.of(secrets, call.Tenant)
	if err != nil {
		return clients.Exhausted(clients.KeyPause, clients.NotCalled(fmt.Errorf("%s account of tenant %s: %w", c.kind, clients.Printable(call.Tenant, 100), err)))
	}
	return c.failures.Note(ctx, "account of "+call.Tenant, clients.OfTenant, probing(ctx), ofTenant(send(call, client)))
}

const sharedAccount = "the worker's account"

// shared reports whether a tenant has no credentials of its own.
func (c *caller[C]) shared(tenant string) bool {
	secrets, err := c.store.For(c.kind, tenant)
	return secrets == nil && err == nil
}

// quotas returns the known limits of the worker's account and of the tenants' accounts.
func (c *caller[C]) quotas() (all []api.Quota) {
	if c.common != nil {
		all = quotasOf("", *c.common)
	}
	return append(all, c.own.quotas()...)
}

// Close closes all clients.
func (c *caller[C]) Close() {
	c.own.Close()
	if c.common != nil {
		(*c.common).Close()
	}
}

// ofTenant turns an error that holds a whole account into one that holds only the tenant who
// owns the account.
func ofTenant(err error) error {
	if throttled, ok := errors.AsType[*clients.ThrottledError](err); ok && throttled.Account {
		return clients.Throttled(throttled.After, throttled.Err)
	}
	if exhausted, ok := errors.AsType[*clients.ExhaustedError](err); ok && exhausted.Account {
		return clients.Exhausted(exhausted.After, exhausted.Err)
	}
	return err
}

// maxName is the maximum length of a quota's name on the dashboard: the provider chooses it.
const maxName = 64

// quotasOf returns the limits that a provider's client knows of its account, which is that of a tenant or, with "", the
// worker's.
func quotasOf(account string, client any) (all []api.Quota) {
	known, ok := client.(interface{ Quotas() []clients.Quota })
	if !ok {
		return nil
	}
	for _, q := range known.Quotas() {
		all = append(all, api.Quota{
			Account: account, Name: clients.Printable(q.Name, maxName), Limit: q.Limit, Remaining: q.Remaining, ResetsAt: q.ResetsAt.UTC(),
			SaidAt: q.At.UTC().Truncate(time.Millisecond), WindowSeconds: q.Window.Seconds(),
		})
	}
	return all
}
