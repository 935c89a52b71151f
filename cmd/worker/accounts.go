package main

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/breaker"
	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/internal/credentials"
)

// maxAccounts bounds the clients of tenants with accounts of their own, for each
// kind: a client is made in no time, but the connections that it keeps are dear.
const maxAccounts = 256

// accounts keeps a client for each of the credentials that were used last.
type accounts[C interface{ Close() }] struct {
	open func(*credentials.Secrets) (C, error)

	mu    sync.Mutex
	known map[string]*list.Element // by the secrets' ID
	order list.List                // of account[C], the last used first
}

type account[C any] struct {
	id     string
	tenant string // that used it first
	client C
}

func newAccounts[C interface{ Close() }](open func(*credentials.Secrets) (C, error)) *accounts[C] {
	return &accounts[C]{open: open, known: map[string]*list.Element{}}
}

// of is the client of an account. One that others drove out meanwhile is only
// closed, which ends no call.
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

// quotas is what is known of the accounts' limits, those of the last used first.
func (a *accounts[C]) quotas() (all []api.Quota) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e := a.order.Front(); e != nil; e = e.Next() {
		known := e.Value.(account[C])
		all = append(all, quotasOf(known.tenant, known.client)...)
	}
	return all
}

// Close closes what is kept.
func (a *accounts[C]) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for e := a.order.Front(); e != nil; e = e.Next() {
		e.Value.(account[C]).client.Close()
	}
}

// caller makes the calls of a kind with the account of the job's tenant, or with
// the worker's where the tenant has none.
type caller[C interface{ Close() }] struct {
	kind     string
	store    *credentials.Store
	own      *accounts[C]
	common   *C // nil: the worker has no account
	failures *breaker.Breaker
}

// do makes one call. Nothing is called with an account that is not the tenant's to
// use: a job whose tenant should have one and has none waits, with its tenant.
func (c *caller[C]) do(ctx context.Context, call clients.Call, send func(C) error) error {
	secrets, err := c.store.For(c.kind, call.Tenant)
	if err != nil {
		return clients.Throttled(clients.KeyPause, err)
	}
	if secrets == nil {
		if c.common == nil {
			return clients.Throttled(clients.KeyPause, &credentials.HeldError{Kind: c.kind, Tenant: clients.Printable(call.Tenant, 100), Reason: "neither it nor the worker has any"})
		}
		return c.failures.Note(sharedAccount, clients.OfAccount, probing(ctx), send(*c.common))
	}
	client, err := c.own.of(secrets, call.Tenant)
	if err != nil {
		return clients.Throttled(clients.KeyPause, clients.NotCalled(fmt.Errorf("%s account of tenant %s: %w", c.kind, clients.Printable(call.Tenant, 100), err)))
	}
	return c.failures.Note("account of "+call.Tenant, clients.OfTenant, probing(ctx), ofTenant(send(client)))
}

const sharedAccount = "the worker's account"

// shared tells whether a tenant's calls are made with the worker's account.
func (c *caller[C]) shared(tenant string) bool {
	secrets, err := c.store.For(c.kind, tenant)
	return secrets == nil && err == nil
}

// quotas is what is known of the limits of the worker's account and of the tenants'.
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

// ofTenant turns what holds an account, and with it all tenants, into what holds
// the one tenant whose account it is.
func ofTenant(err error) error {
	if throttled, ok := errors.AsType[*clients.ThrottledError](err); ok && throttled.Account {
		return clients.Throttled(throttled.After, throttled.Err)
	}
	if exhausted, ok := errors.AsType[*clients.ExhaustedError](err); ok && exhausted.Account {
		return clients.Exhausted(exhausted.After, exhausted.Err)
	}
	return err
}
