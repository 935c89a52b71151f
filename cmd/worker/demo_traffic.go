package main

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/headgate/headgate/clients/ai"
	"github.com/headgate/headgate/clients/email"
	"github.com/headgate/headgate/clients/payment"
	"github.com/headgate/headgate/clients/webhook"
	"github.com/headgate/headgate/queue"
)

// demoTenant is one source of demo traffic.
type demoTenant struct {
	name, kind string

	// wants is calls a second, a fifth more than its limits let go: the backlog
	// grows.
	wants float64
	// sentences of its prompts: these, or up to so many more.
	sentences, more int
}

var demoTenants = []demoTenant{
	{name: "acme", kind: "webhook", wants: 60},
	{name: "globex", kind: "webhook", wants: 30},
	{name: "initech", kind: "email", wants: 24},
	{name: "hooli", kind: "ai", wants: 10, sentences: 6, more: 4},
	{name: "umbrella", kind: "ai", wants: 18, sentences: 1, more: 1},
	{name: "stark", kind: "payment", wants: 18}, // of the account's, which is
	{name: "wayne", kind: "payment", wants: 18}, // shared
}

func (p *demoProviders) job(t demoTenant, n int) queue.Job {
	job := queue.Job{Kind: t.kind, Tenant: t.name}
	switch t.kind {
	case "webhook":
		body, _ := json.Marshal(map[string]int{"n": n}) // an int always encodes
		job.Payload = webhook.Request{URL: p.web.URL() + "/" + t.name, Body: body}
	case "email":
		job.Payload = email.Message{
			From: t.name + "@example.com", To: email.Addresses{"you@example.com"},
			Subject: "Demo " + strconv.Itoa(n), Text: "Sent by worker dev.",
		}
	case "ai":
		// It knows what it is going to use; the answer corrects that.
		job.Payload = prompt(t.sentences + n%(t.more+1))
	case "payment":
		job.Payload = payment.Payload{
			Action: payment.CreateAndConfirm, Amount: new(int64(100 + n%900)), Currency: "usd", PaymentMethod: "pm_card_visa",
		}
	}
	return job
}

// prompt asks for an answer of up to 60 tokens; the demo's model needs half.
func prompt(sentences int) ai.Request {
	body, _ := json.Marshal(map[string]any{ // these always encode
		"model":      "demo",
		"max_tokens": 60,
		"messages":   []map[string]string{{"role": "user", "content": strings.Repeat("The customer asks where the parcel is. ", sentences)}},
	})
	return ai.Request(body)
}
