-- The same tables as in SQLite. Texts are compared by their bytes ("C"), as SQLite does, whatever the database is set to.
-- Times: microseconds since 1970 UTC. Ids: hyphenated lower-case uuids. JSON: text. Booleans: 0, 1.
-- Rows of pipelines (runs, jobs, instances, fleets) are kept small; their large JSON stands in *_data tables.

CREATE TABLE meta (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL
);

CREATE TABLE users (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    global_role TEXT COLLATE "C" NOT NULL,
    email TEXT COLLATE "C",
    active BIGINT NOT NULL,
    token TEXT COLLATE "C" NOT NULL,
    token_sha256 TEXT COLLATE "C" NOT NULL,
    ssh_public_key TEXT COLLATE "C",
    ssh_private_key TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    original_name TEXT COLLATE "C",
    deleted BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX users_name ON users (lower(name));
CREATE UNIQUE INDEX users_token ON users (token_sha256);
CREATE INDEX users_created ON users (created_at DESC, id ASC) WHERE deleted = 0;

CREATE TABLE user_keys (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    added_at BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT COLLATE "C" NOT NULL,
    public_key TEXT COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX user_keys_fingerprint ON user_keys (user_id, fingerprint);

CREATE TABLE projects (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL,
    owner_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    created_at BIGINT NOT NULL,
    is_public BIGINT NOT NULL,
    templates_repo TEXT COLLATE "C",
    ssh_public_key TEXT COLLATE "C" NOT NULL,
    ssh_private_key TEXT COLLATE "C" NOT NULL,
    original_name TEXT COLLATE "C",
    deleted BIGINT NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX projects_name ON projects (lower(name));
CREATE INDEX projects_owner ON projects (owner_id) WHERE deleted = 0;
CREATE INDEX projects_created ON projects (created_at DESC, id ASC) WHERE deleted = 0;

-- The order in which members joined is the order in which they are listed.
CREATE TABLE members (
    number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    role TEXT COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX members_project_user ON members (project_id, user_id);
CREATE INDEX members_user ON members (user_id);

CREATE TABLE backends (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    type TEXT COLLATE "C" NOT NULL,
    record TEXT COLLATE "C" NOT NULL,
    secret TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX backends_project_type ON backends (project_id, type);

CREATE TABLE repos (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    name TEXT COLLATE "C" NOT NULL,
    info TEXT COLLATE "C" NOT NULL
);
CREATE UNIQUE INDEX repos_project_name ON repos (project_id, name);

CREATE TABLE repo_creds (
    repo_id TEXT COLLATE "C" NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    creds TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (repo_id, user_id)
);

CREATE TABLE codes (
    repo_id TEXT COLLATE "C" NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
    blob_hash TEXT COLLATE "C" NOT NULL,
    size BIGINT NOT NULL,
    blob BYTEA,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (repo_id, blob_hash)
);

CREATE TABLE file_archives (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    blob_hash TEXT COLLATE "C" NOT NULL,
    size BIGINT NOT NULL,
    blob BYTEA,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX file_archives_user_hash ON file_archives (user_id, blob_hash);

CREATE TABLE secrets (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    name TEXT COLLATE "C" NOT NULL,
    value TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX secrets_project_name ON secrets (project_id, name);

CREATE TABLE fleets (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    name TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    status_message TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    consolidation_attempt BIGINT NOT NULL,
    consolidated_at BIGINT,
    deleted BIGINT NOT NULL,
    last_processed_at BIGINT NOT NULL,
    look_again_at BIGINT NOT NULL,
    lock_token TEXT COLLATE "C",
    lock_expires_at BIGINT,
    lock_owner TEXT COLLATE "C"
);
CREATE UNIQUE INDEX fleets_project_name ON fleets (project_id, name) WHERE deleted = 0;
CREATE INDEX fleets_project ON fleets (project_id, created_at DESC, id ASC);
CREATE INDEX fleets_created ON fleets (created_at DESC, id ASC);
CREATE INDEX fleets_active ON fleets (created_at DESC, id ASC) WHERE deleted = 0;
CREATE INDEX fleets_due ON fleets (look_again_at) WHERE deleted = 0;

CREATE TABLE fleet_data (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    spec TEXT COLLATE "C" NOT NULL
);

CREATE TABLE instances (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    fleet_id TEXT COLLATE "C" NOT NULL REFERENCES fleets (id),
    name TEXT COLLATE "C" NOT NULL,
    instance_num BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    active BIGINT GENERATED ALWAYS AS (CASE WHEN status = 'terminated' THEN 0 ELSE 1 END) STORED,
    unreachable BIGINT NOT NULL,
    health TEXT COLLATE "C" NOT NULL,
    termination_reason TEXT COLLATE "C",
    termination_reason_message TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT,
    last_job_at BIGINT,
    idle_limit BIGINT,
    give_up_at BIGINT,
    first_end_failure_at BIGINT,
    health_checked_at BIGINT,
    provider_ref TEXT COLLATE "C",
    total_blocks BIGINT,
    busy_blocks BIGINT NOT NULL,
    owner_job TEXT COLLATE "C",
    ssh_host TEXT COLLATE "C",
    price DOUBLE PRECISION,
    backend TEXT COLLATE "C",
    deleted BIGINT NOT NULL,
    last_processed_at BIGINT NOT NULL,
    look_again_at BIGINT NOT NULL,
    lock_token TEXT COLLATE "C",
    lock_expires_at BIGINT,
    lock_owner TEXT COLLATE "C"
);
CREATE INDEX instances_fleet ON instances (fleet_id, instance_num) WHERE deleted = 0;
CREATE INDEX instances_project ON instances (project_id, created_at DESC, id ASC);
CREATE INDEX instances_created ON instances (created_at DESC, id ASC);
CREATE INDEX instances_active ON instances (created_at DESC, id ASC) WHERE active = 1;
CREATE INDEX instances_due ON instances (look_again_at) WHERE active = 1;
CREATE INDEX instances_backend ON instances (backend) WHERE active = 1;
CREATE INDEX instances_owner_job ON instances (owner_job) WHERE owner_job IS NOT NULL;

CREATE TABLE instance_data (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    attempt TEXT COLLATE "C",
    provisioning_data TEXT COLLATE "C",
    offer TEXT COLLATE "C",
    requirements TEXT COLLATE "C",
    profile TEXT COLLATE "C"
);

CREATE TABLE runs (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    fleet_id TEXT COLLATE "C",
    name TEXT COLLATE "C" NOT NULL,
    repo_name TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    active BIGINT GENERATED ALWAYS AS (
        CASE WHEN status IN ('terminated', 'failed', 'done') THEN 0 ELSE 1 END) STORED,
    termination_reason TEXT COLLATE "C",
    submitted_at BIGINT NOT NULL,
    next_triggered_at BIGINT,
    resubmission_attempt BIGINT NOT NULL,
    deployment_num BIGINT NOT NULL,
    priority BIGINT NOT NULL,
    desired_replicas TEXT COLLATE "C" NOT NULL,
    deleted BIGINT NOT NULL,
    last_processed_at BIGINT NOT NULL,
    look_again_at BIGINT NOT NULL,
    lock_token TEXT COLLATE "C",
    lock_expires_at BIGINT,
    lock_owner TEXT COLLATE "C"
);
CREATE UNIQUE INDEX runs_project_name ON runs (project_id, name) WHERE deleted = 0;
CREATE INDEX runs_submitted ON runs (submitted_at DESC, id ASC);
CREATE INDEX runs_project ON runs (project_id, submitted_at DESC, id ASC);
CREATE INDEX runs_user ON runs (user_id, submitted_at DESC, id ASC);
CREATE INDEX runs_active ON runs (submitted_at DESC, id ASC) WHERE active = 1;
CREATE INDEX runs_project_active ON runs (project_id, submitted_at DESC, id ASC) WHERE active = 1;
CREATE INDEX runs_fleet_active ON runs (fleet_id) WHERE active = 1;
CREATE INDEX runs_due ON runs (look_again_at) WHERE active = 1;

CREATE TABLE run_data (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    spec TEXT COLLATE "C" NOT NULL,
    service TEXT COLLATE "C"
);

CREATE TABLE jobs (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    run_id TEXT COLLATE "C" NOT NULL REFERENCES runs (id),
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    instance_id TEXT COLLATE "C",
    replica_num BIGINT NOT NULL,
    job_num BIGINT NOT NULL,
    submission_num BIGINT NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    deployment_num BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    termination_reason TEXT COLLATE "C",
    termination_reason_message TEXT COLLATE "C",
    exit_status BIGINT,
    submitted_at BIGINT NOT NULL,
    started_at BIGINT,
    finished_at BIGINT,
    stop TEXT COLLATE "C" NOT NULL,
    remove_at BIGINT,
    blocks BIGINT NOT NULL,
    runner_timestamp BIGINT NOT NULL,
    disconnected_at BIGINT,
    inactivity_secs BIGINT,
    released BIGINT NOT NULL,
    registered BIGINT NOT NULL,
    price DOUBLE PRECISION,
    last_processed_at BIGINT NOT NULL,
    look_again_at BIGINT NOT NULL,
    lock_token TEXT COLLATE "C",
    lock_expires_at BIGINT,
    lock_owner TEXT COLLATE "C"
);
CREATE UNIQUE INDEX jobs_run ON jobs (run_id, replica_num, job_num, submission_num);
CREATE INDEX jobs_instance ON jobs (instance_id) WHERE instance_id IS NOT NULL;
CREATE INDEX jobs_submitted_due ON jobs (look_again_at) WHERE status = 'submitted';
CREATE INDEX jobs_running_due ON jobs (look_again_at) WHERE status IN ('provisioning', 'pulling', 'running');
CREATE INDEX jobs_terminating_due ON jobs (look_again_at) WHERE status = 'terminating';

-- The key stands apart from the rest of the specification, which goes into answers as it is.
CREATE TABLE job_data (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    spec TEXT COLLATE "C" NOT NULL,
    ssh_key TEXT COLLATE "C",
    provisioning_data TEXT COLLATE "C",
    runtime_data TEXT COLLATE "C"
);

-- What may exist at a provider without a row that owns it; worked off by the clean-up task.
CREATE TABLE cleanups (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    backend TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    provider_ref TEXT COLLATE "C" NOT NULL,
    machine_id TEXT COLLATE "C",
    machine_data TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    look_again_at BIGINT NOT NULL,
    attempts BIGINT NOT NULL
);
CREATE INDEX cleanups_due ON cleanups (look_again_at);
CREATE INDEX cleanups_ref ON cleanups (provider_ref);

-- recorded_at is repeated in the targets so that a target's history is one range of an index.
CREATE TABLE events (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    recorded_at BIGINT NOT NULL,
    actor_id TEXT COLLATE "C",
    message TEXT COLLATE "C" NOT NULL
);
CREATE INDEX events_recorded ON events (recorded_at DESC, id ASC);

CREATE TABLE event_targets (
    event_id TEXT COLLATE "C" NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    position BIGINT NOT NULL,
    type TEXT COLLATE "C" NOT NULL,
    target_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C",
    name TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (event_id, position)
);
CREATE INDEX event_targets_target ON event_targets (target_id, event_id);
CREATE INDEX event_targets_project ON event_targets (project_id, event_id);
