-- Logs of jobs, where they are not in files: some lines a row, as the server writes them down.
CREATE TABLE log_chunks (
    job_id TEXT NOT NULL,
    producer TEXT NOT NULL,
    first_line INTEGER NOT NULL,
    lines INTEGER NOT NULL,
    first_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (job_id, producer, first_line)
);
CREATE INDEX log_chunks_time ON log_chunks (job_id, producer, last_at);
CREATE INDEX log_chunks_age ON log_chunks (last_at);
-- Work that one server at a time does for all, and whose turn it is.
CREATE TABLE turns (
    name TEXT NOT NULL PRIMARY KEY,
    owner TEXT NOT NULL,
    expires_at INTEGER NOT NULL
);
