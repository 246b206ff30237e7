INSERT INTO limits.tiny (x) VALUES (1);
