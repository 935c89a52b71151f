package ai

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/sashabaranov/go-openai"
)

// openAI calls OpenAI, Azure and compatible servers.
type openAI struct {
	client *openai.Client
	azure  bool
}

func newOpenAI(config Config, t *transport) *openAI {
	c := openai.DefaultConfig(config.APIKey)
	if config.Provider == "azure" {
		c = openai.DefaultAzureConfig(config.APIKey, config.BaseURL)
		c.APIVersion = cmp.Or(config.APIVersion, "2024-10-21")
		// The model is the name of the deployment, which becomes a part of the path.
		c.AzureModelMapperFunc = url.PathEscape
	}
	c.BaseURL = cmp.Or(config.BaseURL, c.BaseURL)
	c.HTTPClient = t.client()
	return &openAI{openai.NewClientWithConfig(c), config.Provider == "azure"}
}

var deployment = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)

func (o *openAI) check(f fields) error {
	if o.azure && !deployment.MatchString(f.model) {
		return errors.New("model: Azure requires the name of a deployment: letters, digits, '.', '_' and '-'")
	}
	return nil
}

// complete makes the SDK address and authenticate the call. It gives the SDK only the model, so
// that the SDK neither validates nor drops other fields; the transport sends the whole body.
func (o *openAI) complete(ctx context.Context, f fields, _ []byte) (Result, string, error) {
	answer, err := o.client.CreateChatCompletion(ctx, openai.ChatCompletionRequest{Model: f.model})
	if err != nil {
		return Result{}, "", err
	}
	if len(answer.Choices) == 0 {
		return Result{}, "", errors.New("the answer has no choices")
	}
	first := answer.Choices[0]
	var text strings.Builder
	text.WriteString(first.Message.Content)
	for _, part := range first.Message.MultiContent {
		text.WriteString(part.Text)
	}
	return Result{
		ID: answer.ID, Model: answer.Model, StopReason: string(first.FinishReason),
		Usage: Usage{
			Prompt: int64(answer.Usage.PromptTokens), Completion: int64(answer.Usage.CompletionTokens), Total: int64(answer.Usage.TotalTokens),
		},
	}, text.String(), nil
}
