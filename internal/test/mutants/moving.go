package main

// movingMutants break the change of a queue's partitions.
var movingMutants = []mutant{
	{
		"queue/internal/store/lanes.lua", `if side == '>' then return moves[1] == 'here' end`, `if side == '>' then return moves[1] ~= false end`,
		"no fence", "a tenant takes no jobs before its own have arrived", "queue TestJobsOfATenantThatMoves",
	},
	{
		"queue/internal/store/lanes.lua", `return moves[2] ~= sum and (not moves[1] or moves[1] == 'stop')`, `return not moves[1] or moves[1] == 'stop'`,
		"no fence", "no tenant comes to a partition that is closed", "queue TestJobsOfATenantThatMoves",
	},
	{
		"queue/client.go", `if batch = batch.without(strays, results); len(batch.jobs) == 0 {`, `if len(batch.jobs) == 0 {`,
		"missing condition", "no job overtakes one that was refused before it", "queue TestManyJobsOfATenantThatArrives",
	},
	{
		"queue/operate/publish.go", `if before["*"] != "" && before[store.SumField] == after[store.SumField] {`, `if before["*"] == "none" {`,
		"missing condition", "limits that are published again do not begin a change again that ends", "queue/internal/mover TestMove$",
	},
	{
		"queue/internal/store/move.lua", `if config().layout ~= ARGV[2] then return done end`, ``,
		"no fence", "who was stopped in an earlier change holds no tenant", "queue/internal/mover TestLateRequests",
	},
	{
		"queue/internal/store/move_in.lua", `if read('HGET', headgate .. 'moves', tenant) ~= 'comes ' .. token then return end`, `if not read('HGET', headgate .. 'moves', tenant) then return end`,
		"no fence", "who was stopped puts no job into a partition again", "queue/internal/mover TestLateRequests",
	},
	{
		"queue/internal/store/move_in.lua", `if read('EXISTS', key) == 0 then`, `if key then`,
		"missing check", "a job that has arrived is not counted again", "queue/internal/mover TestMove",
	},
	{
		"queue/internal/store/move_out.lua", `plan('HSET', leaving, id, leaving_write(place, tonumber(score), tonumber(deadline or 0)))`, ``,
		"missing write", "a job on its way is found again", "queue/internal/mover TestMove",
	},
	{
		"queue/internal/store/move_with.lua", `if state ~= ARGV[3] then return 0 end`, ``,
		"no fence", "who was stopped does not set back what is used of limits", "queue/internal/mover TestLateRequests",
	},
	{
		"queue/internal/mover/rest.go", `if err := c.values(ctx, keys[tenant], &there); err != nil {`, `if err := c.values(ctx, keys[tenant][:0], &there); err != nil {`,
		"missing write", "what is used of limits moves", "queue/internal/mover TestMove",
	},
}
