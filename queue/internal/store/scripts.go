package store

import (
	_ "embed"

	"github.com/headgate/headgate/queue/internal/asynqwire"
)

//go:embed explain.lua
var explainLua string

var ExplainScript = NewScript(explainLua)

//go:embed gauges.lua
var gaugesLua string

var GaugesScript = NewScript(gaugesLua)

//go:embed jobs.lua
var jobsLua string

var JobsScript = NewScript(jobsLua, asynqwire.MessageLua)

//go:embed verbs.lua
var verbsLua string

var VerbsScript = NewScript(verbsLua, RecordLua, EndLua, asynqwire.MessageLua)

//go:embed pause.lua
var pauseLua string

var PauseScript = NewScript(pauseLua)

//go:embed archived.lua
var archivedLua string

var ArchivedScript = NewScript(archivedLua)
