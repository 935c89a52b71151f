package dashboard

import (
	"net/http"

	"github.com/headgate/headgate/dashboard/api"
	"github.com/headgate/headgate/dashboard/web"
)

// NewHandler serves the operators' page, and the API that it asks at api/v1/
// beside it. It can be mounted under any prefix, which [http.StripPrefix] takes
// off:
//
//	mux.Handle("/queues/", http.StripPrefix("/queues", dashboard.NewHandler(a)))
//
// [api.API.Run] has to run beside it. Who may see and do what is the API's
// decision; the page shows nothing without it.
func NewHandler(a *api.API) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(api.Base+"/", a)
	mux.Handle("/", web.Handler())
	return mux
}
