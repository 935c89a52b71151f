package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestSendFollowUps reads the follow-ups and the callback from what is stored of the job.
func TestSendFollowUps(t *testing.T) {
	url, client := own(t)
	const callback = "https://example.com/ended"
	file := put(t, filepath.Join(t.TempDir(), "failure.json"), `{"kind":"call","payload":"afterfailure"}`)
	if out, errText, code := enqueue(t, `{"kind":"call","payload":"aftersuccess"}`, "send", "--redis", url, "--kind", "call", "--tenant", "a", "--payload", "1",
		"--on-success", "-", "--on-failure", "@"+file, "--callback", callback); code != exitOK {
		t.Fatalf("send: %s %s exit %d", out, errText, code)
	}
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var stored strings.Builder
	for _, key := range keys {
		if fields, err := client.HGetAll(t.Context(), key).Result(); err == nil {
			for name, value := range fields {
				stored.WriteString(key + " " + name + "=" + value + "\n")
			}
		} else if text, err := client.Get(t.Context(), key).Result(); err == nil {
			stored.WriteString(key + "=" + text + "\n")
		}
	}
	for _, want := range []string{"aftersuccess", "afterfailure", callback} {
		if !strings.Contains(stored.String(), want) {
			t.Errorf("nothing stored has %s:\n%q", want, stored.String())
		}
	}
}
