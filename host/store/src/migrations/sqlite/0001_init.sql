-- Times: microseconds since 1970 UTC. Ids: hyphenated lower-case uuids. JSON: text. Booleans: 0, 1.
-- Rows of pipelines (runs, jobs, instances, fleets) are kept small; their large JSON stands in *_data tables.

CREATE TABLE meta (
    name TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

CREATE TABLE users (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    global_role TEXT NOT NULL,
    email TEXT,
    active INTEGER NOT NULL,
    token TEXT NOT NULL,
    token_sha256 TEXT NOT NULL,
    ssh_public_key TEXT,
    ssh_private_key TEXT,
    created_at INTEGER NOT NULL,
    original_name TEXT,
    deleted INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX users_name ON users (lower(name));
CREATE UNIQUE INDEX users_token ON users (token_sha256);
CREATE INDEX users_created ON users (created_at DESC, id ASC) WHERE deleted = 0;

CREATE TABLE user_keys (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id),
    added_at INTEGER NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    public_key TEXT NOT NULL
);
CREATE UNIQUE INDEX user_keys_fingerprint ON user_keys (user_id, fingerprint);

CREATE TABLE projects (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    owner_id TEXT NOT NULL REFERENCES users (id),
    created_at INTEGER NOT NULL,
    is_public INTEGER NOT NULL,
    templates_repo TEXT,
    ssh_public_key TEXT NOT NULL,
    ssh_private_key TEXT NOT NULL,
    original_name TEXT,
    deleted INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX projects_name ON projects (lower(name));
CREATE INDEX projects_owner ON projects (owner_id) WHERE deleted = 0;
CREATE INDEX projects_created ON projects (created_at DESC, id ASC) WHERE deleted = 0;

-- The order in which members joined is the order in which they are listed.
CREATE TABLE members (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    project_id TEXT NOT NULL REFERENCES projects (id),
    user_id TEXT NOT NULL REFERENCES users (id),
    role TEXT NOT NULL
);
CREATE UNIQUE INDEX members_project_user ON members (project_id, user_id);
CREATE INDEX members_user ON members (user_id);

CREATE TABLE backends (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    type TEXT NOT NULL,
    record TEXT NOT NULL,
    secret TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX backends_project_type ON backends (project_id, type);

CREATE TABLE repos (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    info TEXT NOT NULL
);
CREATE UNIQUE INDEX repos_project_name ON repos (project_id, name);

CREATE TABLE repo_creds (
    repo_id TEXT NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id),
    creds TEXT NOT NULL,
    PRIMARY KEY (repo_id, user_id)
);

CREATE TABLE codes (
    repo_id TEXT NOT NULL REFERENCES repos (id) ON DELETE CASCADE,
    blob_hash TEXT NOT NULL,
    size INTEGER NOT NULL,
    blob BLOB,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (repo_id, blob_hash)
);

CREATE TABLE file_archives (
    id TEXT NOT NULL PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id),
    blob_hash TEXT NOT NULL,
    size INTEGER NOT NULL,
    blob BLOB,
    created_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX file_archives_user_hash ON file_archives (user_id, blob_hash);

CREATE TABLE secrets (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE UNIQUE INDEX secrets_project_name ON secrets (project_id, name);

CREATE TABLE fleets (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    status_message TEXT,
    created_at INTEGER NOT NULL,
    consolidation_attempt INTEGER NOT NULL,
    consolidated_at INTEGER,
    deleted INTEGER NOT NULL,
    last_processed_at INTEGER NOT NULL,
    look_again_at INTEGER NOT NULL,
    lock_token TEXT,
    lock_expires_at INTEGER,
    lock_owner TEXT
);
CREATE UNIQUE INDEX fleets_project_name ON fleets (project_id, name) WHERE deleted = 0;
CREATE INDEX fleets_project ON fleets (project_id, created_at DESC, id ASC);
CREATE INDEX fleets_created ON fleets (created_at DESC, id ASC);
CREATE INDEX fleets_active ON fleets (created_at DESC, id ASC) WHERE deleted = 0;
CREATE INDEX fleets_due ON fleets (look_again_at) WHERE deleted = 0;

CREATE TABLE fleet_data (
    id TEXT NOT NULL PRIMARY KEY,
    spec TEXT NOT NULL
);

CREATE TABLE instances (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    fleet_id TEXT NOT NULL REFERENCES fleets (id),
    name TEXT NOT NULL,
    instance_num INTEGER NOT NULL,
    status TEXT NOT NULL,
    active INTEGER GENERATED ALWAYS AS (CASE WHEN status = 'terminated' THEN 0 ELSE 1 END) STORED,
    unreachable INTEGER NOT NULL,
    health TEXT NOT NULL,
    termination_reason TEXT,
    termination_reason_message TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    last_job_at INTEGER,
    idle_limit INTEGER,
    give_up_at INTEGER,
    first_end_failure_at INTEGER,
    health_checked_at INTEGER,
    provider_ref TEXT,
    total_blocks INTEGER,
    busy_blocks INTEGER NOT NULL,
    owner_job TEXT,
    ssh_host TEXT,
    price REAL,
    backend TEXT,
    deleted INTEGER NOT NULL,
    last_processed_at INTEGER NOT NULL,
    look_again_at INTEGER NOT NULL,
    lock_token TEXT,
    lock_expires_at INTEGER,
    lock_owner TEXT
);
CREATE INDEX instances_fleet ON instances (fleet_id, instance_num) WHERE deleted = 0;
CREATE INDEX instances_project ON instances (project_id, created_at DESC, id ASC);
CREATE INDEX instances_created ON instances (created_at DESC, id ASC);
CREATE INDEX instances_active ON instances (created_at DESC, id ASC) WHERE active = 1;
CREATE INDEX instances_due ON instances (look_again_at) WHERE active = 1;
CREATE INDEX instances_backend ON instances (backend) WHERE active = 1;
CREATE INDEX instances_owner_job ON instances (owner_job) WHERE owner_job IS NOT NULL;

CREATE TABLE instance_data (
    id TEXT NOT NULL PRIMARY KEY,
    attempt TEXT,
    provisioning_data TEXT,
    offer TEXT,
    requirements TEXT,
    profile TEXT
);

CREATE TABLE runs (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    user_id TEXT NOT NULL REFERENCES users (id),
    fleet_id TEXT,
    name TEXT NOT NULL,
    repo_name TEXT,
    status TEXT NOT NULL,
    active INTEGER GENERATED ALWAYS AS (
        CASE WHEN status IN ('terminated', 'failed', 'done') THEN 0 ELSE 1 END) STORED,
    termination_reason TEXT,
    submitted_at INTEGER NOT NULL,
    next_triggered_at INTEGER,
    resubmission_attempt INTEGER NOT NULL,
    deployment_num INTEGER NOT NULL,
    priority INTEGER NOT NULL,
    desired_replicas TEXT NOT NULL,
    deleted INTEGER NOT NULL,
    last_processed_at INTEGER NOT NULL,
    look_again_at INTEGER NOT NULL,
    lock_token TEXT,
    lock_expires_at INTEGER,
    lock_owner TEXT
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
    id TEXT NOT NULL PRIMARY KEY,
    spec TEXT NOT NULL,
    service TEXT
);

CREATE TABLE jobs (
    id TEXT NOT NULL PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (id),
    project_id TEXT NOT NULL REFERENCES projects (id),
    instance_id TEXT,
    replica_num INTEGER NOT NULL,
    job_num INTEGER NOT NULL,
    submission_num INTEGER NOT NULL,
    name TEXT NOT NULL,
    deployment_num INTEGER NOT NULL,
    status TEXT NOT NULL,
    termination_reason TEXT,
    termination_reason_message TEXT,
    exit_status INTEGER,
    submitted_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    stop TEXT NOT NULL,
    remove_at INTEGER,
    blocks INTEGER NOT NULL,
    runner_timestamp INTEGER NOT NULL,
    disconnected_at INTEGER,
    inactivity_secs INTEGER,
    released INTEGER NOT NULL,
    registered INTEGER NOT NULL,
    price REAL,
    last_processed_at INTEGER NOT NULL,
    look_again_at INTEGER NOT NULL,
    lock_token TEXT,
    lock_expires_at INTEGER,
    lock_owner TEXT
);
CREATE UNIQUE INDEX jobs_run ON jobs (run_id, replica_num, job_num, submission_num);
CREATE INDEX jobs_instance ON jobs (instance_id) WHERE instance_id IS NOT NULL;
CREATE INDEX jobs_submitted_due ON jobs (look_again_at) WHERE status = 'submitted';
CREATE INDEX jobs_running_due ON jobs (look_again_at) WHERE status IN ('provisioning', 'pulling', 'running');
CREATE INDEX jobs_terminating_due ON jobs (look_again_at) WHERE status = 'terminating';

-- The key stands apart from the rest of the specification, which goes into answers as it is.
CREATE TABLE job_data (
    id TEXT NOT NULL PRIMARY KEY,
    spec TEXT NOT NULL,
    ssh_key TEXT,
    provisioning_data TEXT,
    runtime_data TEXT
);

-- What may exist at a provider without a row that owns it; worked off by the clean-up task.
CREATE TABLE cleanups (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    backend TEXT NOT NULL,
    region TEXT NOT NULL,
    provider_ref TEXT NOT NULL,
    machine_id TEXT,
    machine_data TEXT,
    created_at INTEGER NOT NULL,
    look_again_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL
);
CREATE INDEX cleanups_due ON cleanups (look_again_at);
CREATE INDEX cleanups_ref ON cleanups (provider_ref);

-- recorded_at is repeated in the targets so that a target's history is one range of an index.
CREATE TABLE events (
    id TEXT NOT NULL PRIMARY KEY,
    recorded_at INTEGER NOT NULL,
    actor_id TEXT,
    message TEXT NOT NULL
);
CREATE INDEX events_recorded ON events (recorded_at DESC, id ASC);

CREATE TABLE event_targets (
    event_id TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    position INTEGER NOT NULL,
    type TEXT NOT NULL,
    target_id TEXT NOT NULL,
    project_id TEXT,
    name TEXT NOT NULL,
    PRIMARY KEY (event_id, position)
);
CREATE INDEX event_targets_target ON event_targets (target_id, event_id);
CREATE INDEX event_targets_project ON event_targets (project_id, event_id);
