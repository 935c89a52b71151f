package main

// nodeMutants break what makes a queue of several nodes: partitions, replicas, slots of a Cluster.
var nodeMutants = []mutant{
	{
		"queue/fitness.go", `if len(away) == len(s.homes()) {`, `if len(away) < len(s.homes()) {`,
		"swapped branch", "a worker is ready while it serves some of its queues", "queue TestReadyBesideAMasterAway",
	},
	{
		"queue/internal/store/time.go", `node = master`, `_ = master`,
		"wrong key", "the node of a queue tells its time", "queue/internal/store TestTime",
	},
	{
		"queue/internal/store/time.go", `if _, ok := client.(*redis.ClusterClient); !ok {`, `if client != nil {`,
		"wrong key", "the node of a queue tells its time", "queue/internal/store TestTime",
	},
	{
		"queue/internal/store/script.go", `func KeysOf(queue, first string) []string { return []string{first, Key(queue, "never")} }`, `func KeysOf(queue, first string) []string { return []string{first} }`,
		"missing condition", "no script runs while its slot moves", "queue TestSlotMoves",
	},
	// Partitions.
	{
		"internal/partition/layout.go", `if score := mix(hash ^ mix(uint64(i))); i == 1 || score > highest {`, `if score := mix(hash ^ mix(uint64(i)+1)); i == 1 || score > highest {`,
		"off by one", "a tenant is in the same partition for ever", "internal/partition TestOf",
	},
	{
		"queue/route.go", `list, err := r.in(layout.Home(tenant)).Get(ctx, age, fresh)`, `list, err := r.in(queue).Get(ctx, 0, true)`,
		"wrong key", "a producer needs no node but that of its tenant", "queue TestTimedPartitionAway",
	},
	{
		"queue/internal/refreshed/refreshed.go", `case r.known && !fresh: // as new as it can be had`, `case r.known && !fresh && r.err == nil:`,
		"no escape", "what is known of queues outlasts a node", "queue/internal/refreshed TestRefreshed",
	},
	{
		"queue/operate/publish.go", `for i, name := range slices.Backward(names) {`, `for i, name := range names[:1] {`,
		"missing write", "each partition has the limits", "queue/operate TestPartitionsChange",
	},
	{
		"queue/operate/publish.go", `if ok && slices.Contains(slices.Collect(maps.Values(known)), of.Queue) {`, `if ok && of.Queue != "" {`,
		"missing check", "no worker starts without the limits of its queue", "queue TestStartBesideANodeAway",
	},
	{
		"queue/fitness.go", `return s.without(ctx, err)`, `return err`,
		"no escape", "workers start while a node of a Cluster is away", "queue TestStartBesideANodeAway",
	},
	{
		"queue/internal/store/partitions.go", `for range listed {`, `for range listed[:0] {`,
		"no escape", "operators do without the node of a queue's first partition", "queue TestAwayIsSaid",
	},
	{
		"queue/operate/partitions.go", `case was.From != nil:`, `case was.From != nil && false:`,
		"missing check", "one change of partitions at a time", "queue/operate TestPartitionsChange",
	},
	{
		"queue/operate/partitions.go", `if layout.From = was.From; was.From == nil && !was.Equal(*layout) {`, `if !was.Equal(*layout) {`,
		"missing condition", "publishing again does not end a change", "queue/operate TestPartitionsChange",
	},
	{
		"queue/operate/unregister.go", `passes := []bool{false, true} // all have to be empty before one is removed`, `passes := []bool{true}`,
		"missing check", "a queue with jobs in any partition is not removed", "queue/operate TestPartitionsChange",
	},
	{
		"queue/operate/verbs.go", `for _, home := range homes {`, `for _, home := range homes[:1] {`,
		"missing write", "verbs change the jobs of all partitions", "queue TestPartitionsAreOneQueue",
	},
	{
		"queue/settle.go", `if home == g.queue {`, `if home != g.queue {`,
		"swapped branch", "a pause of the account reaches all partitions", "queue TestPauseOfTheAccountReachesAllPartitions",
	},
	{
		"queue/inspect/events.go", `all = slices.DeleteFunc(all, func(e Event) bool { return e.At.UnixMilli() >= until.UnixMilli() })`, `all = slices.DeleteFunc(all, func(e Event) bool { return e.At.IsZero() })`,
		"clock", "no event comes behind the cursor of who has read later ones", "queue TestEventsOfSlowClocks",
	},
	{
		"queue/inspect/partitions.go", `if errs[i] == nil {`, `if errs[i] == nil || i > 0 {`,
		"missing check", "a queue is shown while a partition does not answer", "queue TestAwayIsSaid",
	},
	{
		"queue/internal/store/enqueue.lua", `if not is_home(ARGV[5], tenant) then return {-6} end`, ``,
		"missing check", "no job goes into a partition that is gone", "queue TestProducersOfOtherPartitions",
	},
	{
		"queue/internal/store/lanes.lua", `local more = math.floor(limit_left(entry.spec, b, math.max(now, b.last or 0))) - math.floor(left * part)`, `local more = math.floor(limit_left(entry.spec, b, now)) - math.floor(left * part)`,
		"wrong time", "as much remains as the provider says", "queue TestQuotaBeforeTheAccountedMoment",
	},
	{
		"queue/internal/store/lanes.lua", `if sum ~= (latest or config().layout) then return false end`, `if sum ~= '' and config().layout == '' then return false end`,
		"no fence", "a job goes where its tenant is, whatever its client knows", "queue TestProducersOfOtherPartitions",
	},
	{
		"queue/internal/store/enqueue_fresh.lua", `if not names or (limits[2] or '') ~= ARGV[5] then return end`, `if not names then return end`,
		"no fence", "the short way in knows the partitions of its queue, too", "queue TestFreshOfAnotherLayout",
	},
	// Jobs of replicated queues.
	{
		"queue/replicas.go", `case n == 0:`, `case n < 0:`,
		"missing check", "a job of a replicated queue is accepted only after a replica has it", "queue TestNoReplica",
	},
	{
		"queue/request.go", `r.awaits = r.awaits || a.durability == limits.Replicated`, `r.awaits = r.awaits || a.durability != limits.Replicated`,
		"wrong operator", "only jobs of replicated queues wait for replicas", "queue TestOneWait",
	},
	{
		"queue/replicas.go", `return replicas{client, make(chan struct{}, max(connections/2, 1))}`, `return replicas{client, make(chan struct{}, max(connections*20, 1))}`,
		"missing bound", "other queues are not held up while no replica answers", "queue TestOthersDoNotWaitForReplicas",
	},
	{
		"queue/operate/publish.go", `if maps.Equal(before, fields) && epoch != "" {`, `if len(before) > 1000 && epoch != "" {`,
		"missing write", "a worker starts on a full Redis", "queue TestVerbsOnFullRedis",
	},
}
