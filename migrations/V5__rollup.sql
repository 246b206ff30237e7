-- The state of a job, from the counts in job_state: the twin of model::rollup::job_status, which explains it.
-- Used by the leader alone, in the statement that settles tasks.
--
-- The body is parsed here and now (RETURN, not a string), so no search_path of a caller can change its meaning,
-- and without SET or STRICT it is inlined.
CREATE FUNCTION yardmaster.job_status_of(cancel_requested boolean, n_tasks bigint, n_done bigint, n_bad bigint, started boolean)
RETURNS yardmaster.job_status LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN cancel_requested AND n_tasks - n_done > n_bad THEN 'cancelling'::yardmaster.job_status
    WHEN cancel_requested                              THEN 'cancelled'::yardmaster.job_status
    WHEN n_tasks = n_done                              THEN 'finished'::yardmaster.job_status
    WHEN n_tasks - n_done <= n_bad                     THEN 'failed'::yardmaster.job_status
    WHEN n_bad > 0                                     THEN 'failing'::yardmaster.job_status
    WHEN started                                       THEN 'running'::yardmaster.job_status
    ELSE 'scheduled'::yardmaster.job_status
END;
