-- The provider's reference stands on the disk; it is written with the row and never changes.
CREATE TABLE volumes (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    name TEXT COLLATE "C" NOT NULL,
    configuration TEXT COLLATE "C" NOT NULL,
    external BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    status_message TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    last_job_at BIGINT,
    provider_ref TEXT COLLATE "C" NOT NULL,
    attempted_at BIGINT,
    provisioning_data TEXT COLLATE "C",
    delete_asked BIGINT NOT NULL,
    first_end_failure_at BIGINT,
    deleted_at BIGINT,
    last_processed_at BIGINT NOT NULL,
    look_again_at BIGINT NOT NULL,
    lock_token TEXT COLLATE "C",
    lock_expires_at BIGINT,
    lock_owner TEXT COLLATE "C"
);
CREATE UNIQUE INDEX volumes_project_name ON volumes (project_id, name) WHERE deleted_at IS NULL;
CREATE INDEX volumes_project ON volumes (project_id, created_at DESC, id ASC);
CREATE INDEX volumes_created ON volumes (created_at DESC, id ASC);
CREATE INDEX volumes_active ON volumes (created_at DESC, id ASC) WHERE deleted_at IS NULL;
CREATE INDEX volumes_due ON volumes (look_again_at) WHERE deleted_at IS NULL;
CREATE INDEX volumes_ref ON volumes (provider_ref) WHERE deleted_at IS NULL;

-- Which job has which volume, from its placement until the disk is off its machine.
CREATE TABLE volume_attachments (
    volume_id TEXT COLLATE "C" NOT NULL REFERENCES volumes (id),
    job_id TEXT COLLATE "C" NOT NULL,
    instance_id TEXT COLLATE "C" NOT NULL,
    data TEXT COLLATE "C",
    detach_began_at BIGINT,
    PRIMARY KEY (volume_id, job_id)
);
CREATE INDEX volume_attachments_job ON volume_attachments (job_id);
