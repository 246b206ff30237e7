-- A claim of 100; then one round trip a task with its SELECT 1 and its finish.
\set b (:b + 1) % 20000
\set id :client_id * 20000 + :b
\if (:b % 100) = 0
UPDATE limits.task SET state = 1, started = now() WHERE id BETWEEN :id AND :id + 99 RETURNING id, body;
\endif
\startpipeline
SELECT 1;
UPDATE limits.task SET state = 2, finished = now() WHERE id = :id;
\endpipeline
