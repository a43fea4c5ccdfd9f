-- References stand on what the provider makes; they are written with the rows and never change.
CREATE TABLE gateways (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    name TEXT COLLATE "C" NOT NULL,
    configuration TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    status_message TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    provider_ref TEXT COLLATE "C" NOT NULL,
    attempted_at BIGINT,
    load_balancer TEXT COLLATE "C",
    scale_attempt BIGINT NOT NULL,
    scaled_at BIGINT,
    delete_asked BIGINT NOT NULL,
    first_end_failure_at BIGINT,
    deleted_at BIGINT,
    last_processed_at BIGINT NOT NULL,
    look_again_at BIGINT NOT NULL,
    lock_token TEXT COLLATE "C",
    lock_expires_at BIGINT,
    lock_owner TEXT COLLATE "C"
);
CREATE UNIQUE INDEX gateways_project_name ON gateways (project_id, name) WHERE deleted_at IS NULL;
CREATE INDEX gateways_project ON gateways (project_id, created_at DESC, id ASC);
CREATE INDEX gateways_due ON gateways (look_again_at) WHERE deleted_at IS NULL;
CREATE INDEX gateways_ref ON gateways (provider_ref) WHERE deleted_at IS NULL;

CREATE TABLE gateway_replicas (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    gateway_id TEXT COLLATE "C" NOT NULL REFERENCES gateways (id),
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    name TEXT COLLATE "C" NOT NULL,
    replica_num BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    status_message TEXT COLLATE "C",
    created_at BIGINT NOT NULL,
    provider_ref TEXT COLLATE "C" NOT NULL,
    attempted_at BIGINT,
    provisioning_data TEXT COLLATE "C",
    connect_tries BIGINT NOT NULL,
    registered BIGINT NOT NULL,
    first_end_failure_at BIGINT,
    last_processed_at BIGINT NOT NULL,
    look_again_at BIGINT NOT NULL,
    lock_token TEXT COLLATE "C",
    lock_expires_at BIGINT,
    lock_owner TEXT COLLATE "C"
);
CREATE INDEX gateway_replicas_gateway ON gateway_replicas (gateway_id, replica_num);
CREATE INDEX gateway_replicas_due ON gateway_replicas (look_again_at) WHERE status <> 'terminated';
CREATE INDEX gateway_replicas_ref ON gateway_replicas (provider_ref) WHERE status <> 'terminated';

-- Services of the project use it unless they name another.
CREATE TABLE default_gateways (
    project_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES projects (id),
    gateway_id TEXT COLLATE "C" NOT NULL REFERENCES gateways (id)
);
CREATE INDEX default_gateways_gateway ON default_gateways (gateway_id);
