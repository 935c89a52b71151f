package server

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"time"

	"github.com/headgate/headgate/dashboard/api"
)

// guarded serves programs, and not pages of other sites in the browser of somebody who can reach the
// address. If that is local, it answers only to a loopback name: a remote page could resolve its own
// name to this machine's address.
func guarded(local bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		site := r.Header.Get("Sec-Fetch-Site")
		switch {
		case local && !api.LoopbackName(r.Host):
			http.Error(w, fmt.Sprintf("Host %.100q is not a loopback name: use localhost or 127.0.0.1.", r.Host), http.StatusForbidden)
		case site != "" && site != "none" && site != "same-origin":
			http.Error(w, "Requests of other sites' pages are refused.", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// readiness answers whether the server is ready. Only this machine learns why it is not, or which queues
// it cannot serve.
func readiness(ready func() error, away func() []string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		here := err == nil && peer.Addr().Unmap().IsLoopback() && api.ProxyHeader(r.Header) == ""
		if err = ready(); err == nil {
			fmt.Fprintln(w, "ok")
			if here && away != nil {
				for _, queue := range away() {
					fmt.Fprintf(w, "queue %s: its Redis does not answer\n", queue)
				}
			}
			return
		}
		reason := "not ready; its log says why"
		if here {
			reason = err.Error()
		}
		http.Error(w, reason, http.StatusServiceUnavailable)
	}
}

// maxProfile is the maximum length of a profile or trace.
const maxProfile = time.Minute

// bounded serves a profile or trace that takes as long as the request asks, up to maxProfile.
func bounded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if text := r.URL.Query().Get("seconds"); text != "" {
			if n, err := strconv.ParseFloat(text, 64); err != nil || !(n > 0 && n <= maxProfile.Seconds()) {
				http.Error(w, fmt.Sprintf("seconds: %.20q must be above 0 and at most %.0f", text, maxProfile.Seconds()), http.StatusBadRequest)
				return
			}
		}
		r.Body = http.NoBody                                            // a form in it would be kept on disk
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // else it is cut off
		next(w, r)
	}
}

func profiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", bounded(pprof.Index)) // it serves deltas over some seconds, too
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", bounded(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", bounded(pprof.Trace))
}
