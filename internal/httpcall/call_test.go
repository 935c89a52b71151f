package httpcall

import (
	"net/http"
	"testing"
)

// TestWhenReadWithoutABody: other transports than that of net/http may give an answer none.
func TestWhenReadWithoutABody(t *testing.T) {
	ended := false
	resp := &http.Response{}
	WhenRead(resp, func() { ended = true })
	if !ended || resp.Body != nil {
		t.Errorf("ended: %v, body %v", ended, resp.Body)
	}
}
