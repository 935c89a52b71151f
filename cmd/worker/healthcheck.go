package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/settings"
)

func healthcheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the worker on this machine whether it takes jobs; exit 1 when not",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := readConfig(cmd)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 5*time.Second)
			defer cancel()
			return healthcheck(ctx, c.HTTP)
		},
	}
	settings.AddFlags(cmd, new(config))
	return cmd
}

func healthcheck(ctx context.Context, at settings.HTTP) error {
	url, err := at.HealthURL()
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
		return fmt.Errorf("no worker answers: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		reason := make([]byte, 300)
		n, _ := response.Body.Read(reason)
		return fmt.Errorf("not ready: %s", reason[:n])
	}
	return nil
}
