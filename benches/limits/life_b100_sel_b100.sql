-- A claim of 100, a hundred times SELECT 1, a finish of 100.
\set b (:b + 1) % 20000
\set id :client_id * 20000 + :b
\if (:b % 100) = 0
UPDATE limits.task SET state = 1, started = now() WHERE id BETWEEN :id AND :id + 99 RETURNING id, body;
\endif
SELECT 1;
\if (:b % 100) = 99
UPDATE limits.task SET state = 2, finished = now() WHERE id BETWEEN :id - 99 AND :id;
\endif
