-- Who may call what. PostgreSQL lets everybody execute a new function; here that would hand out more than it seems: who may
-- execute a definer's trigger function can hang it on a table of their own, whose types bring their own casts.

REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA yardmaster FROM PUBLIC;

-- Every owner of a task completes it; the ticket is the right to.
GRANT EXECUTE ON FUNCTION yardmaster.complete(bigint, uuid, integer, integer, bigint, uuid, bytea) TO PUBLIC;

-- Looking needs these in views and policies.
GRANT EXECUTE ON FUNCTION yardmaster.sees_all(), yardmaster.steers_all(), yardmaster.task_why(bigint),
    yardmaster.wait_for(text, bigint, text), yardmaster.is_of_this_transaction(text, bigint),
    yardmaster.job_wait(bigint, yardmaster.job_status), yardmaster.task_wait(bigint, yardmaster.task_status)
    TO yardmaster_user, yardmaster_admin, yardmaster_monitor;

-- Submitting and steering, with what their triggers and policies call in the caller's name.
GRANT EXECUTE ON FUNCTION yardmaster.may_become(name), yardmaster.may_steer(bigint), yardmaster.role_oid(name),
    yardmaster.check_retry(jsonb), yardmaster.check_target(name, text), yardmaster.check_keys(text, jsonb, text[]),
    yardmaster.check_field(text, text, jsonb), yardmaster.check_nodes_involved(text[]),
    yardmaster.check_id(text, bigint), yardmaster.check_candidates(text, text[]), yardmaster.candidates_of(jsonb),
    yardmaster.job_submit(jsonb), yardmaster.job_request(yardmaster.request_kind, bigint),
    yardmaster.ended_job_request(yardmaster.request_kind, bigint, text),
    yardmaster.task_request(yardmaster.request_kind, bigint, text),
    yardmaster.job_cancel(bigint), yardmaster.job_retry(bigint), yardmaster.job_pause(bigint),
    yardmaster.job_resume(bigint), yardmaster.job_delete(bigint), yardmaster.job_cleanup(bigint),
    yardmaster.node_request(yardmaster.request_kind, text), yardmaster.node_drain(text), yardmaster.node_resume(text),
    yardmaster.task_cancel(bigint), yardmaster.task_retry(bigint, text)
    TO yardmaster_user, yardmaster_admin;
