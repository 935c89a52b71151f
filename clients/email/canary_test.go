package email

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate/headgate/clients"
)

// A provider that repeats everything it was sent, as some do in refusals, makes no
// error hold a secret.
func TestSecretsStayOutOfErrors(t *testing.T) {
	const secret, token, key, password = "canary-secret-access-key", "canary-session-token", "re_canary_api_key", "canary-password"
	echo := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			said := key
			if r.URL.Path != "/emails" {
				said = secret // Resend is never told
			}
			said = fmt.Sprint(said, " ", r.Header, " ", r.URL, " ", string(body[:min(len(body), 100)]))
			w.Header().Set("X-Amzn-ErrorType", r.URL.Query().Get("kind"))
			w.Header().Set("Location", "http://127.0.0.1:1/?"+key)
			w.WriteHeader(status)
			json.NewEncoder(w).Encode(map[string]any{"message": said, "name": "name " + r.Header.Get("Authorization"), "statusCode": status})
		}
	}
	clean := func(what string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s: no error", what)
		}
		for e := err; e != nil; e = errors.Unwrap(e) {
			// What a log makes of it, too.
			marshalled, _ := json.Marshal(e)
			for _, text := range []string{e.Error(), fmt.Sprintf("%+v", e), string(marshalled)} {
				for _, canary := range []string{secret, token, key, password} {
					if strings.Contains(text, canary) {
						t.Errorf("%s: %.200q gives %s away", what, text, canary)
					}
				}
			}
		}
	}
	for _, status := range []int{200, 301, 400, 401, 403, 404, 409, 422, 429, 451, 500, 502, 503} {
		server := httptest.NewServer(echo(status))
		if status != 200 {
			resend, err := NewResend(ResendConfig{URL: server.URL, APIKey: key})
			if err != nil {
				t.Fatal(err)
			}
			clean(fmt.Sprint("resend ", status), resend.Send(t.Context(), call, plain()))
			resend.Close()
		}
		for _, code := range []string{"", "MessageRejected", "SignatureDoesNotMatch", "TooManyRequestsException", "AccessDeniedException", "Novel"} {
			if status == 200 {
				continue
			}
			kinds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.URL.RawQuery = "kind=" + code
				echo(status)(w, r)
			}))
			ses, err := NewSES(SESConfig{Region: "eu-central-1", AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: secret, SessionToken: token, Endpoint: kinds.URL})
			if err != nil {
				t.Fatal(err)
			}
			clean(fmt.Sprint("ses ", status, " ", code), ses.Send(t.Context(), call, plain()))
			_, err = ses.Quota(t.Context())
			clean(fmt.Sprint("quota ", status, " ", code), err)
			ses.Close()
			kinds.Close()
		}
		server.Close()
	}
	// And when nobody answers.
	resend, _ := NewResend(ResendConfig{URL: "http://127.0.0.1:1", APIKey: key})
	clean("resend, nobody", resend.Send(t.Context(), call, plain()))
	ses, _ := NewSES(SESConfig{Region: "eu-central-1", AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: secret, SessionToken: token, Endpoint: "http://127.0.0.1:1"})
	clean("ses, nobody", ses.Send(t.Context(), call, plain()))

	// A mail server that repeats the credentials, at every step.
	for _, verb := range []string{"AUTH", "MAIL", "RCPT", "DATA", "."} {
		server := newScript(t, map[string]string{"EHLO": "250-script\r\n250 AUTH PLAIN", "AUTH": "235 ok"})
		server.set(verb, "550 no: "+password)
		config := server.config()
		config.Username, config.Password = "u", password
		err := newSender(t, config).Send(t.Context(), clients.Call{Job: "1"}, plain())
		clean("smtp "+verb, err)
	}
}
