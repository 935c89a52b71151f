-- release.lua: free the permits of calls that used what they reserved.
--
-- KEYS      sets of permits, one for each permit
-- ARGV[i]   id of the call that holds the permit of KEYS[i]
for i = 1, #KEYS do redis.pcall('ZREM', KEYS[i], ARGV[i]) end -- one may have become another algorithm's
return 1
