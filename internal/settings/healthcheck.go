package settings

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
)

// Healthcheck asks the server on this machine whether it is ready; the error says
// that it is not, and why.
func (h HTTP) Healthcheck(ctx context.Context) error {
	url, err := h.HealthURL()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// It is this machine that is asked, by an address that its certificate need not
	// be for.
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("no answer from the address in HEADGATE_ADMIN_ADDR, or else HEADGATE_HTTP_ADDR: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reason := make([]byte, 300)
		n, _ := response.Body.Read(reason)
		return fmt.Errorf("not ready: %s", reason[:n])
	}
	return nil
}
