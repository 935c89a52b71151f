package main

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
)

// Headers reach the task from each form that a job can be written in.
func TestHeaders(t *testing.T) {
	url, client := own(t)
	dir := t.TempDir()
	ndjson := `{"kind":"call","tenant":"ndjson","payload":1,"headers":{"trace":"n","empty":""}}` + "\n"
	csv := "kind,tenant,payload,headers.trace\ncall,csv,1,c\n"
	object := "kind,tenant,payload,headers\ncall,object,1,\"{\"\"trace\"\":\"\"o\"\"}\"\n"
	for _, args := range [][]string{
		{"bulk", put(t, filepath.Join(dir, "a.ndjson"), ndjson)},
		{"bulk", put(t, filepath.Join(dir, "b.csv"), csv)},
		{"bulk", put(t, filepath.Join(dir, "c.csv"), object)},
		{"send", "--kind", "call", "--tenant", "flag", "--payload", "1", "--header", "trace=a=b"},
	} {
		if out, errText, code := enqueue(t, "", append(args, "--redis", url)...); code != exitOK {
			t.Fatalf("%v: %s %s exit %d", args, out, errText, code)
		}
	}
	inspector := asynq.NewInspectorFromRedisClient(client)
	lanes, err := inspector.Groups("calls")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]map[string]string{}
	for _, lane := range lanes {
		tasks, err := inspector.ListAggregatingTasks("calls", lane.Group)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			own := maps.Clone(task.Headers)
			maps.DeleteFunc(own, func(name, _ string) bool { return strings.HasPrefix(name, "headgate-") })
			found[task.Headers["headgate-tenant"]] = own
		}
	}
	for tenant, want := range map[string]map[string]string{
		"ndjson": {"trace": "n", "empty": ""}, "csv": {"trace": "c"}, "object": {"trace": "o"}, "flag": {"trace": "a=b"},
	} {
		if got := found[tenant]; !maps.Equal(got, want) {
			t.Errorf("headers from %s = %v; want %v", tenant, got, want)
		}
	}
}
