package ai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
)

// anthropicAPI calls Anthropic.
type anthropicAPI struct{ messages anthropic.MessageService }

func newAnthropic(config Config, t *transport) *anthropicAPI {
	// A service, unlike a client, reads neither keys nor addresses from the environment.
	return &anthropicAPI{anthropic.NewMessageService(
		option.WithBaseURL(cmp.Or(config.BaseURL, "https://api.anthropic.com/")),
		option.WithAPIKey(config.APIKey),
		option.WithHTTPClient(t.client()),
		option.WithMaxRetries(0),
		// The context limits the call. Without a timeout of its own, the SDK refuses calls that may
		// take longer than ten minutes.
		option.WithRequestTimeout(config.Timeout+time.Minute),
	)}
}

func (a *anthropicAPI) check(f fields) error {
	if f.completion == 0 {
		return errors.New("max_tokens: it is missing, but Anthropic requires it")
	}
	if f.all["n"] != nil {
		return errors.New("n: Anthropic returns one completion per call: remove n")
	}
	return nil
}

func (a *anthropicAPI) complete(ctx context.Context, _ fields, body []byte) (Result, string, error) {
	message, err := a.messages.New(ctx, param.Override[anthropic.MessageNewParams](json.RawMessage(body)))
	if err != nil {
		return Result{}, "", err
	}
	if message == nil || message.Type != "message" {
		return Result{}, "", errors.New("the answer is not a message")
	}
	var text strings.Builder
	for _, block := range message.Content {
		text.WriteString(block.Text)
	}
	prompt := message.Usage.InputTokens + message.Usage.CacheCreationInputTokens
	return Result{
		ID: message.ID, Model: string(message.Model), StopReason: string(message.StopReason),
		Usage: Usage{Prompt: prompt, Completion: message.Usage.OutputTokens},
	}, text.String(), nil
}
