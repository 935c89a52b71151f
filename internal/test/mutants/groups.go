package main

// groupMutants break limits that the tenants of a group share.
var groupMutants = []mutant{
	{
		"queue/internal/store/lanes.lua", `applies = applies and tenant.group ~= nil`, ``,
		"missing condition", "a tenant without a group is not held by limits per group", "queue TestGroups",
	},
	{
		"queue/internal/store/lanes.lua", `parts[j] = tenant.group or ''`, ``,
		"wrong key", "each group has a bucket of its own", "queue TestGroups",
	},
	{
		"queue/internal/store/lanes.lua", `if attr == 'group' and own.group == nil then n = 0 end`, ``,
		"missing condition", "a tenant without a group may have jobs of any cost", "queue TestGroups",
	},
	{
		"queue/internal/store/lane.go", `func Holds(limit limits.Limit, l *Lane) bool { return l.Group != "" || !limit.PerGroup() }`, `func Holds(limit limits.Limit, l *Lane) bool { return true }`,
		"missing condition", "calls of tenants without a group do not count under a limit per group", "queue/internal/conformance TestCallsOfGroups",
	},
	{
		"queue/internal/effective/stored.go", `ofGroup, grouped := l.Groups[t.Group].Limits[queue][limit.Name]`, `ofGroup, grouped := limits.Change{}, false`,
		"missing write", "a group's limit may differ", "queue TestGroups",
	},
	{
		"queue/internal/store/attributes.go", `case name == limits.GroupAttribute:`, `case name == limits.GroupAttribute+"s":`,
		"missing condition", "a job has no group of its own", "queue TestGroupIsNoAttribute",
	},
}
