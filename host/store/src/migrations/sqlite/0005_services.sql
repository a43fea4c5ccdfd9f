-- When a machine turned free while the run waited for its next try.
ALTER TABLE runs ADD COLUMN capacity_at INTEGER;
CREATE INDEX runs_waiting ON runs (project_id, priority DESC, submitted_at, id)
    WHERE status = 'pending' AND resubmission_attempt > 0 AND capacity_at IS NULL AND deleted = 0;

-- Readiness probes of service replicas; asked no more once due_at is null.
CREATE TABLE job_probes (
    job_id TEXT NOT NULL,
    num INTEGER NOT NULL,
    success_streak INTEGER NOT NULL,
    due_at INTEGER,
    PRIMARY KEY (job_id, num)
);
CREATE INDEX job_probes_due ON job_probes (due_at) WHERE due_at IS NOT NULL;

-- Requests to services as each place that forwards them reported last.
CREATE TABLE service_traffic (
    run_id TEXT NOT NULL,
    source TEXT NOT NULL,
    last_30 INTEGER NOT NULL,
    last_60 INTEGER NOT NULL,
    last_300 INTEGER NOT NULL,
    reported_at INTEGER NOT NULL,
    PRIMARY KEY (run_id, source)
);
