-- Logs of jobs, where they are not in files: some lines a row, as the server writes them down.
CREATE TABLE log_chunks (
    job_id TEXT COLLATE "C" NOT NULL,
    producer TEXT COLLATE "C" NOT NULL,
    first_line BIGINT NOT NULL,
    lines BIGINT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at BIGINT NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (job_id, producer, first_line)
);
CREATE INDEX log_chunks_time ON log_chunks (job_id, producer, last_at);
CREATE INDEX log_chunks_age ON log_chunks (last_at);
-- Work that one server at a time does for all, and whose turn it is.
CREATE TABLE turns (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL,
    expires_at BIGINT NOT NULL
);
