package redistest

import "testing"

func TestPowerCut(t *testing.T) {
	t.Parallel()
	for policy, kept := range map[string]bool{"always": true, "no": false} {
		server := Synced(t, "--appendfsync", policy)
		ctx := t.Context()
		for i := range 100 {
			if err := server.Client().Set(ctx, "key", i, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		dropped := server.PowerCut()
		server.Restart()
		value := server.Client().Get(ctx, "key").Val()
		if (value == "99") != kept || (dropped == 0) != kept {
			t.Errorf("appendfsync %s: %d bytes were dropped, and the last value is %q", policy, dropped, value)
		}
	}
}
