-- References stand on what the provider makes; they are written with the rows and never change.
CREATE TABLE gateways (
    id TEXT NOT NULL PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    configuration TEXT NOT NULL,
    status TEXT NOT NULL,
    status_message TEXT,
    created_at INTEGER NOT NULL,
    provider_ref TEXT NOT NULL,
    attempted_at INTEGER,
    load_balancer TEXT,
    scale_attempt INTEGER NOT NULL,
    scaled_at INTEGER,
    delete_asked INTEGER NOT NULL,
    first_end_failure_at INTEGER,
    deleted_at INTEGER,
    last_processed_at INTEGER NOT NULL,
    look_again_at INTEGER NOT NULL,
    lock_token TEXT,
    lock_expires_at INTEGER,
    lock_owner TEXT
);
CREATE UNIQUE INDEX gateways_project_name ON gateways (project_id, name) WHERE deleted_at IS NULL;
CREATE INDEX gateways_project ON gateways (project_id, created_at DESC, id ASC);
CREATE INDEX gateways_due ON gateways (look_again_at) WHERE deleted_at IS NULL;
CREATE INDEX gateways_ref ON gateways (provider_ref) WHERE deleted_at IS NULL;

CREATE TABLE gateway_replicas (
    id TEXT NOT NULL PRIMARY KEY,
    gateway_id TEXT NOT NULL REFERENCES gateways (id),
    project_id TEXT NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    replica_num INTEGER NOT NULL,
    status TEXT NOT NULL,
    status_message TEXT,
    created_at INTEGER NOT NULL,
    provider_ref TEXT NOT NULL,
    attempted_at INTEGER,
    provisioning_data TEXT,
    connect_tries INTEGER NOT NULL,
    registered INTEGER NOT NULL,
    first_end_failure_at INTEGER,
    last_processed_at INTEGER NOT NULL,
    look_again_at INTEGER NOT NULL,
    lock_token TEXT,
    lock_expires_at INTEGER,
    lock_owner TEXT
);
CREATE INDEX gateway_replicas_gateway ON gateway_replicas (gateway_id, replica_num);
CREATE INDEX gateway_replicas_due ON gateway_replicas (look_again_at) WHERE status <> 'terminated';
CREATE INDEX gateway_replicas_ref ON gateway_replicas (provider_ref) WHERE status <> 'terminated';

-- Services of the project use it unless they name another.
CREATE TABLE default_gateways (
    project_id TEXT NOT NULL PRIMARY KEY REFERENCES projects (id),
    gateway_id TEXT NOT NULL REFERENCES gateways (id)
);
CREATE INDEX default_gateways_gateway ON default_gateways (gateway_id);
