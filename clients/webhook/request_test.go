package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	const fine = "https://example.com/hook?x=1#part"
	header := func(name, value string) Request {
		return Request{URL: fine, Headers: map[string]string{name: value}}
	}
	tests := map[string]struct {
		request Request
		wrong   string // "" : nothing
	}{
		"plain":             {Request{URL: fine}, ""},
		"port and ipv6":     {Request{URL: "http://[2001:db8::1]:8080"}, ""},
		"other language":    {Request{URL: "https://bücher.example/"}, ""},
		"other method":      {Request{URL: fine, Method: "PROPFIND"}, ""},
		"other method, -":   {Request{URL: fine, Method: "VERSION-CONTROL"}, ""},
		"text":              {Request{URL: fine, Text: "a=1&b=2"}, ""},
		"every part":        {Request{URL: fine, Method: "PUT", Headers: map[string]string{"X-Token": "a\tü"}, Body: json.RawMessage(`{}`)}, ""},
		"no url":            {Request{}, "url: it is empty"},
		"relative":          {Request{URL: "/hook"}, "not http or https"},
		"file":              {Request{URL: "file:///etc/passwd"}, "not http or https"},
		"script":            {Request{URL: "javascript:alert(1)"}, "not http or https"},
		"opaque":            {Request{URL: "http:example.com"}, "no host"},
		"no host":           {Request{URL: "http://:80/"}, "no host"},
		"user":              {Request{URL: "http://secret@example.com"}, "must not have a user or password"},
		"password":          {Request{URL: "http://u:secret@example.com"}, "must not have a user or password"},
		"broken":            {Request{URL: "http://u:se#cret@example.com"}, "not a URL"},
		"port of none":      {Request{URL: "http://example.com:"}, "port"},
		"port too large":    {Request{URL: "http://example.com:65536"}, "port"},
		"line break":        {Request{URL: "http://example.com/\r\nX: 1"}, "not a URL"},
		"space in the host": {Request{URL: "http://exa%20mple.com/"}, "url: "},
		"endless":           {Request{URL: fine + strings.Repeat("x", 9000)}, "the maximum is 8192"},
		"method":            {Request{URL: fine, Method: "GET / HTTP/1.1\r\n"}, "method: "},
		"lower case":        {Request{URL: fine, Method: "post"}, "method: "},
		"connect":           {Request{URL: fine, Method: "CONNECT"}, "method: "},
		"trace":             {Request{URL: fine, Method: "TRACE"}, "method: "},
		"dashes":            {Request{URL: fine, Method: "-"}, "method: "},
		"endless method":    {Request{URL: fine, Method: strings.Repeat("X", 33)}, "method: "},
		"text of a get":     {Request{URL: fine, Method: "GET", Text: "secret"}, "body: a GET must not have one"},
		"text and body":     {Request{URL: fine, Body: json.RawMessage(`{}`), Text: "secret"}, "text: set body or text, not both"},
		"endless header":    {header("X", strings.Repeat("x", 16<<10)), "the maximum is 16384"},
		"endless headers":   {Request{URL: fine, Headers: many(101)}, "101; the maximum is 100"},
		"signature":         {header("webhook-signature", "secret"), "Webhook-Signature is reserved"},
		"signature's id":    {header("Webhook-ID", "secret"), "Webhook-Id is reserved"},
		"signature's time":  {header("webhook-timestamp", "secret"), "Webhook-Timestamp is reserved"},
		"body of a get":     {Request{URL: fine, Method: "GET", Body: json.RawMessage(`{}`)}, "body: a GET must not have one"},
		"header line break": {header("X", "a\r\nEvil: secret"), "control characters"},
		"header nul":        {header("X", "a\x00"), "control characters"},
		"header name":       {header("X\r\nEvil", "secret"), "headers: a name"},
		"header no name":    {header("", "secret"), "headers: a name"},
		"header name space": {header("X Y", "secret"), "headers: a name"},
		"header not ascii":  {header("Ü", "secret"), "headers: a name"},
		"host":              {header("hOST", "secret"), "Host is reserved"},
		"length":            {header("content-length", "5"), "Content-Length is reserved"},
		"chunked":           {header("transfer-encoding", "chunked"), "Transfer-Encoding is reserved"},
		"connection":        {header("connection", "close"), "Connection is reserved"},
		"proxy":             {header("proxy-authorization", "secret"), "Proxy-Authorization is reserved"},
		"tenant":            {header("headgate-tenant", "other"), "Headgate-Tenant is reserved"},
		"key":               {header("idempotency-key", "other"), "Idempotency-Key is reserved"},
		"twice":             {Request{URL: fine, Headers: map[string]string{"x-a": "1", "X-A": "2"}}, "duplicate header"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := tt.request.Validate()
			switch {
			case err == nil && tt.wrong != "":
				t.Errorf("nothing is wrong; want %q", tt.wrong)
			case err != nil && (tt.wrong == "" || !strings.Contains(err.Error(), tt.wrong)):
				t.Errorf("got %q; want %q", err, tt.wrong)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("%q gives a secret away", err)
			}
		})
	}
	err := Request{Method: "x", Headers: map[string]string{"Host": "x"}}.Validate()
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 3 {
		t.Errorf("%d of 3 mistakes are reported: %v", lines, err)
	}
}

func many(n int) map[string]string {
	headers := map[string]string{}
	for i := range n {
		headers[fmt.Sprint("X-", i)] = "1"
	}
	return headers
}

func TestHost(t *testing.T) {
	for url, want := range map[string]string{
		"https://Example.COM./hook?x=1": "example.com:443",
		"http://example.com":            "example.com:80",
		"http://example.com:8080/":      "example.com:8080",
		"https://[2001:DB8::1]/":        "[2001:db8::1]:443",
		"https://u:p@example.com/":      "",
		"nonsense":                      "",
	} {
		if got := (Request{URL: url}).Host(); got != want {
			t.Errorf("%s: %q; want %q", url, got, want)
		}
	}
}

func FuzzValidate(f *testing.F) {
	f.Add("https://example.com", "POST", "X-A", "1")
	f.Add("http://a:b@c:d", "GET\r\n", "Host", "\r\n")
	f.Fuzz(func(t *testing.T, url, method, name, value string) {
		request := Request{URL: url, Method: method, Headers: map[string]string{name: value}}
		if request.Validate() != nil {
			return
		}
		// What is accepted must be possible to send, and as one request.
		r, err := New(Config{}).build(t.Context(), call, request)
		if err != nil {
			t.Fatalf("accepted, but: %v", err)
		}
		var wire strings.Builder
		if err := r.Write(&wire); err != nil {
			t.Fatalf("accepted, but: %v", err)
		}
		head, _, _ := strings.Cut(wire.String(), "\r\n\r\n")
		for line := range strings.SplitSeq(head, "\r\n") {
			if strings.ContainsAny(line, "\r\n\x00") {
				t.Fatalf("a line of %q", line)
			}
		}
		if got := strings.Count(head, "\r\n"); got > 10 {
			t.Fatalf("%d headers:\n%s", got, head)
		}
	})
}

func TestPublicHostsAreNotPrivate(t *testing.T) {
	for _, url := range []string{"https://example.com/", "http://8.8.8.8:9000/", "http://[2606:4700::1111]/", "https://localhost.example.com/", "http://[::ffff:8.8.8.8]/", "not a url", ""} {
		if host := (Request{URL: url}).PrivateHost(); host != "" {
			t.Errorf("%s: %q", url, host)
		}
	}
	if host := (Request{URL: "http://LocalHost.:8080/x"}).PrivateHost(); host != "localhost:8080" {
		t.Errorf("%q", host)
	}
}
