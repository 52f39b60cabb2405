-- The record of a job. KEYS: job
return redis.call("GET", KEYS[1])
