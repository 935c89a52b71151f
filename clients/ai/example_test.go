package ai_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/sashabaranov/go-openai"

	"github.com/headgate/headgate/clients"
	"github.com/headgate/headgate/clients/ai"
	"github.com/headgate/headgate/clients/sandbox"
)

func ExampleClient_Send() {
	provider, err := sandbox.NewOpenAI(sandbox.AIConfig{Completion: 3})
	if err != nil {
		panic(err)
	}
	defer provider.Close()

	client, err := ai.New(ai.Config{Provider: "openai", BaseURL: provider.URL() + "/v1", APIKey: "sk-example"})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	request := ai.Request(`{"model": "gpt-4o-mini", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello!"}]}`)
	fmt.Println("estimate:", request.Costs())

	result, err := client.Send(context.Background(), clients.Call{Job: "1", Tenant: "acme", Attempt: 1}, request)
	fmt.Println("actual:", result.Actual(), err)
	fmt.Println(result.Model, result.StopReason)

	provider.FailAs(1, sandbox.InsufficientQuota)
	result, err = client.Send(context.Background(), clients.Call{Job: "2", Tenant: "acme", Attempt: 1}, request)
	_, exhausted := errors.AsType[*clients.ExhaustedError](err)
	fmt.Println("exhausted:", exhausted, result.Actual())
	// Output:
	// estimate: map[tokens:61]
	// actual: map[tokens:13] <nil>
	// gpt-4o-mini stop
	// exhausted: true map[tokens:0]
}

// Requests of both SDKs, encoded, are payloads.
func ExampleRequest() {
	for _, params := range []any{
		openai.ChatCompletionRequest{
			Model:    openai.GPT4oMini,
			Messages: []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: "Hello!"}},
		},
		anthropic.MessageNewParams{
			Model: "claude-sonnet-4-5", MaxTokens: 100,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Hello!"))},
		},
	} {
		body, err := json.Marshal(params)
		if err != nil {
			panic(err)
		}
		fmt.Println(ai.Request(body).Validate())
	}
	// Output:
	// <nil>
	// <nil>
}
