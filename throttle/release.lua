-- release.lua: free the permits of a call that used what it reserved.
--
-- KEYS      sets of permits, one for each concurrency limit
-- ARGV[1]   id of the call
for i = 1, #KEYS do redis.pcall('ZREM', KEYS[i], ARGV[1]) end -- one may have become another algorithm's
return 1
