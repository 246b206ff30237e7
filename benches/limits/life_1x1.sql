-- One claim and one finish by primary key, a commit each.
\set b (:b + 1) % 20000
\set id :client_id * 20000 + :b
UPDATE limits.task SET state = 1, started = now() WHERE id = :id;
UPDATE limits.task SET state = 2, finished = now() WHERE id = :id;
