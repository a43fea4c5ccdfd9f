-- When a machine turned free while the run waited for its next try.
ALTER TABLE runs ADD COLUMN capacity_at BIGINT;
CREATE INDEX runs_waiting ON runs (project_id, priority DESC, submitted_at, id)
    WHERE status = 'pending' AND resubmission_attempt > 0 AND capacity_at IS NULL AND deleted = 0;

-- Readiness probes of service replicas; asked no more once due_at is null.
CREATE TABLE job_probes (
    job_id TEXT COLLATE "C" NOT NULL,
    num BIGINT NOT NULL,
    success_streak BIGINT NOT NULL,
    due_at BIGINT,
    PRIMARY KEY (job_id, num)
);
CREATE INDEX job_probes_due ON job_probes (due_at) WHERE due_at IS NOT NULL;

-- Requests to services as each place that forwards them reported last.
CREATE TABLE service_traffic (
    run_id TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    last_30 BIGINT NOT NULL,
    last_60 BIGINT NOT NULL,
    last_300 BIGINT NOT NULL,
    reported_at BIGINT NOT NULL,
    PRIMARY KEY (run_id, source)
);
