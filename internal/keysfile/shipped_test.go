package keysfile

import (
	"os"
	"testing"
	"time"
)

// TestShippedFile: the file that comes along is read, and lets nobody in.
func TestShippedFile(t *testing.T) {
	text, err := os.ReadFile("../../api-keys.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := Parse(text)
	if err != nil || len(keys) != 1 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	if at := keys[0].Expires; at.IsZero() || at.After(time.Now()) {
		t.Errorf("key %q is valid until %v", keys[0].ID, at)
	}
}
