-- The provider's reference stands on the disk; it is written with the row and never changes.
CREATE TABLE volumes (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    user_id TEXT NOT NULL REFERENCES users (id),
    name TEXT NOT NULL,
    configuration TEXT NOT NULL,
    external INTEGER NOT NULL,
    status TEXT NOT NULL,
    status_message TEXT,
    created_at INTEGER NOT NULL,
    last_job_at INTEGER,
    provider_ref TEXT NOT NULL,
    attempted_at INTEGER,
    provisioning_data TEXT,
    delete_asked INTEGER NOT NULL,
    first_end_failure_at INTEGER,
    deleted_at INTEGER,
    last_processed_at INTEGER NOT NULL,
    look_again_at INTEGER NOT NULL,
    lock_token TEXT,
    lock_expires_at INTEGER,
    lock_owner TEXT
);
CREATE UNIQUE INDEX volumes_project_name ON volumes (project_id, name) WHERE deleted_at IS NULL;
CREATE INDEX volumes_project ON volumes (project_id, created_at DESC, id ASC);
CREATE INDEX volumes_created ON volumes (created_at DESC, id ASC);
CREATE INDEX volumes_active ON volumes (created_at DESC, id ASC) WHERE deleted_at IS NULL;
CREATE INDEX volumes_due ON volumes (look_again_at) WHERE deleted_at IS NULL;
CREATE INDEX volumes_ref ON volumes (provider_ref) WHERE deleted_at IS NULL;

-- Which job has which volume, from its placement until the disk is off its machine.
CREATE TABLE volume_attachments (
    volume_id TEXT NOT NULL REFERENCES volumes (id),
    job_id TEXT NOT NULL,
    instance_id TEXT NOT NULL,
    data TEXT,
    detach_began_at INTEGER,
    PRIMARY KEY (volume_id, job_id)
);
CREATE INDEX volume_attachments_job ON volume_attachments (job_id);
