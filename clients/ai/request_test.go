package ai

import (
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/clients"
)

func TestValidate(t *testing.T) {
	const user = `"messages":[{"role":"user","content":"hi"}]`
	tests := map[string]struct {
		body  string
		wrong string // "": nothing
	}{
		"least":                {`{"model":"m",` + user + `}`, ""},
		"more":                 {`{"model":"m",` + user + `,"stream":false,"max_tokens":5,"n":2,"whatever":null}`, ""},
		"newer bound":          {`{"model":"m",` + user + `,"max_completion_tokens":5,"max_tokens":null}`, ""},
		"no object":            {`[]`, "not a JSON object"},
		"broken":               {`{"model":`, "not a JSON object"},
		"two":                  {`{} {}`, "not a JSON object"},
		"twice":                {`{"model":"m",` + user + `,"stream":false,"stream":true}`, "stream: duplicate field"},
		"no model":             {`{` + user + `}`, "model: it is missing"},
		"null model":           {`{"model":null,` + user + `}`, "model: it is missing"},
		"model as number":      {`{"model":1,` + user + `}`, "model: it is not a string"},
		"model as an essay":    {`{"model":"` + strings.Repeat("m", 257) + `",` + user + `}`, "model: 257 bytes"},
		"control characters":   {`{"model":"m\r\n",` + user + `}`, "model: it has control"},
		"no messages":          {`{"model":"m"}`, "messages: it is missing or empty"},
		"null messages":        {`{"model":"m","messages":null}`, "messages: it is missing or empty"},
		"messages as text":     {`{"model":"m","messages":"hi"}`, "messages: it is not a list"},
		"message as text":      {`{"model":"m","messages":[{"role":"user"},"hi"]}`, "messages[1]: it has no role"},
		"message of nobody":    {`{"model":"m","messages":[{"content":"hi"}]}`, "messages[0]: it has no role"},
		"streaming":            {`{"model":"m",` + user + `,"stream":true}`, "stream: streaming is not supported"},
		"streaming, somehow":   {`{"model":"m",` + user + `,"stream":"yes"}`, "stream: it is not true or false"},
		"bound below 1":        {`{"model":"m",` + user + `,"max_tokens":0}`, "max_tokens: it is not a whole number"},
		"bound of halves":      {`{"model":"m",` + user + `,"max_completion_tokens":1.5}`, "max_completion_tokens: it is not"},
		"bound beyond numbers": {`{"model":"m",` + user + `,"max_tokens":99999999999999999999}`, "max_tokens: it is not"},
		"other case":           {`{"model":"m",` + user + `,"max_tokens":5,"Max_Tokens":9000}`, "max_tokens: write it in lower case"},
		"other case of s":      {`{"model":"m",` + user + `,"me\u017fsages":[]}`, "messages: write it in lower case"},
		"other field":          {`{"model":"m",` + user + `,"topK":5}`, ""},
		"choices":              {`{"model":"m",` + user + `,"n":-1}`, "n: it is not"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := Request(tt.body).Validate()
			if tt.wrong == "" && err != nil || tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)) {
				t.Errorf("%v; want %q", err, tt.wrong)
			}
		})
	}
	if err := Request(strings.Repeat(" ", maxRequest+1)).Validate(); err == nil {
		t.Error("an endless one was taken")
	}
}

func TestCosts(t *testing.T) {
	image := `{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 1<<20) + `"}}`
	long := strings.Repeat("x", 300_000) // 100,000 tokens
	ask := func(content string) string {
		return `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":` + content + `}]}`
	}
	for name, tt := range map[string]struct {
		body     string
		from, to int64
	}{
		"text, bound":       {`{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"` + strings.Repeat("x", 300) + `"}]}`, 200, 215},
		"text, unbounded":   {`{"model":"m","messages":[{"role":"user","content":"hi"}]}`, 1024, 1050},
		"choices":           {`{"model":"m","max_tokens":100,"n":4,"messages":[{"role":"user","content":"hi"}]}`, 400, 425},
		"newer bound":       {`{"model":"m","max_completion_tokens":70,"messages":[{"role":"user","content":"hi"}]}`, 70, 90},
		"system and tools":  {`{"model":"m","max_tokens":1,"system":"` + strings.Repeat("y", 30) + `","tools":[{"name":"` + strings.Repeat("z", 30) + `"}],"messages":[{"role":"user","content":"hi"}]}`, 25, 50},
		"picture":           {`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[` + image + `]}]}`, 1600, 1625},
		"document":          {`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","data":"` + strings.Repeat("A", 9999) + `"}}]}]}`, 1600, 1625},
		"document of text":  {`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","data":"` + strings.Repeat("A", 3000) + `"}}]}]}`, 1000, 1050},
		"other languages":   {`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + strings.Repeat("語", 100) + `"}]}`, 100, 120},
		"what is no prompt": {`{"model":"m","max_tokens":1,"metadata":{"x":"` + strings.Repeat("x", 3000) + `"},"messages":[{"role":"user","content":"hi"}]}`, 5, 20},
		"refused":           {`{"model":"m"}`, 0, 0},
		"two bounds":        {`{"model":"m","max_tokens":5000,"max_completion_tokens":1,"messages":[{"role":"user","content":"hi"}]}`, 5000, 5020},
		"settings":          {`{"model":"m","max_tokens":1,"temperature":0.5,"logprobs":true,"seed":null,"logit_bias":{` + strings.Repeat(`"7":1,`, 5000) + `"8":1},"messages":[{"role":"user","content":"hi"}]}`, 5, 20},

		// Other pictures, sounds and documents.
		"picture by URL":           {ask(`[{"type":"image_url","image_url":{"url":"https://example.com/a.png","detail":"high"}}]`), 1600, 1630},
		"picture as text":          {ask(`[{"type":"image_url","image_url":"data:image/png;base64,` + long + `"}]`), 1600, 1630},
		"picture without a type":   {ask(`[{"image_url":"data:image/png;base64,` + long + `"}]`), 1600, 1630},
		"pictures and text":        {ask(`[` + image + `,{"type":"text","text":"` + long + `"},` + image + `]`), 103_200, 103_250},
		"picture for Anthropic":    {ask(`[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + long + `"}}]`), 1600, 1640},
		"picture of a tool":        {ask(`[{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://example.com/a.png"}}]}]`), 1600, 1640},
		"generated picture":        {`{"model":"m","max_tokens":1,"messages":[{"role":"assistant","content":"","images":[` + image + `]}]}`, 1600, 1630},
		"another picture":          {ask(`[{"type":"image","image":"https://example.com/a.png"}]`), 1600, 1630},
		"another picture, encoded": {ask(`[{"type":"image","image":"data:image/png;base64,` + long + `"}]`), 1600, 1630},
		"sound":                    {ask(`[{"type":"input_audio","input_audio":{"data":"` + long + `","format":"wav"}}]`), 1600, 1630},
		"film":                     {ask(`[{"type":"video_url","video_url":{"url":"data:video/mp4;base64,` + long + `"}}]`), 1600, 1630},
		"file":                     {ask(`[{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,` + long + `"}}]`), 1600, 1630},
		"uploaded file":            {ask(`[{"type":"file","file":{"file_id":"file-1"}}]`), 1600, 1630},
		"document by URL":          {ask(`[{"type":"document","source":{"type":"url","url":"https://example.com/a.pdf"}}]`), 1600, 1630},

		// Text counts by its length, whatever it looks like.
		"text like a URL":          {ask(`"data: ` + long + `"`), 100_000, 100_050},
		"text like a picture":      {ask(`[{"type":"text","text":"data:image/png;base64,` + long + `"}]`), 100_000, 100_050},
		"number out of range":      {`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + long + `","x":1e999}]}`, 100_000, 100_050},
		"tools with such a number": {`{"model":"m","max_tokens":1,"tools":[{"description":"` + long + `","x":-1e999}],"messages":[{"role":"user","content":"hi"}]}`, 100_000, 100_050},
		"digits":                   {`{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi","x":` + strings.Repeat("1", 300_000) + `}]}`, 100_000, 100_050},
		"message like a picture":   {`{"model":"m","max_tokens":1,"messages":[{"role":"user","type":"image","content":"` + long + `"}]}`, 100_000, 100_050},
		"beside a picture":         {ask(`[{"type":"image_url","image_url":{"url":"https://example.com/a.png"},"text":"` + long + `"}]`), 101_600, 101_650},
		"context of a document":    {ask(`[{"type":"document","source":{"type":"url","url":"https://example.com/a.pdf"},"context":"` + long + `"}]`), 101_600, 101_650},
		"document of parts":        {ask(`[{"type":"document","source":{"type":"content","content":[{"type":"text","text":"` + long + `"}]}}]`), 100_000, 100_050},
		"prediction":               {`{"model":"m","max_tokens":1,"prediction":{"type":"content","content":"` + long + `"},"messages":[{"role":"user","content":"hi"}]}`, 100_000, 100_050},
		"documents":                {`{"model":"m","max_tokens":1,"documents":[{"title":"a","text":"` + long + `"}],"messages":[{"role":"user","content":"hi"}]}`, 100_000, 100_050},
		"format for Anthropic":     {`{"model":"m","max_tokens":1,"output_config":{"format":{"schema":{"description":"` + long + `"}}},"messages":[{"role":"user","content":"hi"}]}`, 100_000, 100_050},
		"input of a tool":          {ask(`[{"type":"tool_use","input":{"type":"image","source":{"type":"base64","data":"` + long + `"}}}]`), 100_000, 100_050},
		"schema of a tool":         {`{"model":"m","max_tokens":1,"tools":[{"input_schema":{"default":{"type":"file","image_url":"data:;base64,` + long + `"}}}],"messages":[{"role":"user","content":"hi"}]}`, 100_000, 100_050},
		"nothing, often":           {ask(`[{"type":"tool_use","input":[` + strings.Repeat(`null,`, 50_000) + strings.Repeat(`[],`, 50_000) + `""]}]`), 100_000, 200_000},
	} {
		t.Run(name, func(t *testing.T) {
			got := Request(tt.body).Costs()
			if n := got["tokens"]; len(got) != 1 || n < tt.from || n > tt.to {
				t.Errorf("%v; want %d to %d", got, tt.from, tt.to)
			}
		})
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":5,"messages":[{"role":"user","content":[{"type":"image"}]}]}`))
	f.Add([]byte(`{"a":1,"a":{}}`))
	f.Add([]byte("{\"\xff\":[[[[1]]]]}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := Request(body)
		tokens := r.Costs()["tokens"]
		if err := r.Validate(); err != nil && tokens != 0 || tokens < 0 || tokens > 1<<40 {
			t.Fatalf("%d tokens, %v", tokens, err)
		}
	})
}

func TestWaits(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "1": time.Millisecond, "8734": 8734 * time.Millisecond, "0.5": 500 * time.Microsecond, "-1": 0, "NaN": 0, "Inf": 24 * time.Hour, "1e30": 24 * time.Hour, "x": 0,
	} {
		if got := milliseconds(value); got != want {
			t.Errorf("milliseconds(%q) = %v; want %v", value, got, want)
		}
	}
	for message, want := range map[string]time.Duration{
		"Please try again in 20s. Visit":    20 * time.Second,
		"Please try again in 7m12s.":        432 * time.Second,
		"try again in 644ms":                644 * time.Millisecond,
		"Please retry after 9 seconds.":     9 * time.Second,
		"retry after 1 minute":              time.Minute,
		"RETRY AFTER 86400 seconds":         24 * time.Hour,
		"try again in 5":                    5 * time.Second,
		"try again in a while":              0,
		"try again later":                   0,
		"try again in 5h3h3.3.3.3s, or not": 0,
	} {
		if got := waitIn(message); got != want {
			t.Errorf("waitIn(%q) = %v; want %v", message, got, want)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add("x-ratelimit-remaining-requests", "0", "x-ratelimit-reset-requests", "6m0s", "try again in 1s", int64(0))
	f.Add("anthropic-ratelimit-input-tokens-remaining", "0", "anthropic-ratelimit-input-tokens-reset", "2026-03-04T05:07:07Z", "", int64(1772600000))
	f.Add("Retry-After-Ms", "1e309", "Retry-After", "NaN", "retry after 99999999999999999999 hours", int64(-1))
	f.Add("x-ratelimit-", "", "anthropic-ratelimit--", "", "regain access on 2026-13-41 at 99:99 UTC", int64(0))
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2, message string, unix int64) {
		header := map[string][]string{name1: {value1}, name2: {value2}, "X-Ratelimit-Remaining-Tokens": nil}
		a := answer{status: 429, header: header, message: message, kind: "requests", now: time.Unix(unix, 0)}
		for _, wait := range []time.Duration{a.wait(), a.stated(), metersOf(header, a.now).empty()} {
			if wait < 0 || wait > clients.MaxRetryAfter {
				t.Fatalf("%v", wait)
			}
		}
		if after := a.paidAgain(); after < 0 || after > maxPark {
			t.Fatalf("exhausted for %v", after)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(429, `{"error":{"message":"m","type":"tokens","code":"x","details":{"error_code":"y"}}}`)
	f.Add(200, `{"error":{"code":7}}`)
	f.Add(400, "\xff<html>"+canary)
	f.Fuzz(func(t *testing.T, status int, body string) {
		c := &Client{host: "h", key: canary}
		err := c.outcome(answerOf(&exchange{status: status, answer: []byte(body)}))
		if text := err.Error(); strings.Contains(text, canary) || len(text) > maxReason+3 || strings.ContainsAny(text, "\r\n\x00") {
			t.Fatalf("%q", text)
		}
	})
}
