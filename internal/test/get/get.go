// Package get has tests read what a server shows.
package get

import (
	"io"
	"net/http"
	"testing"
)

// Text returns the body of the answer to a GET request. The test fails if the status is not 200.
func Text(t testing.TB, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %s %v", url, response.Status, text, err)
	}
	return string(text)
}
