package api

import (
	"crypto/rand"
	"net/http"
	"regexp"
)

// requestIDHeader identifies a request in the answer, in problems and in the log. A client, or a
// proxy in front of the server, can choose the id.
const requestIDHeader = "X-Request-Id"

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// identify sets the id of a request in the header of its answer: the one that the client chose,
// if it is usable, or a new one.
func identify(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(requestIDHeader)
	if !requestIDPattern.MatchString(id) {
		id = rand.Text()
	}
	w.Header().Set(requestIDHeader, id)
}
