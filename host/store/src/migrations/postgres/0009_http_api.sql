-- What projects let others use. Fleets and gateways are named by id, so that a new one of the same name is not exported.
CREATE TABLE exports (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    name TEXT COLLATE "C" NOT NULL,
    is_global BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX exports_project_name ON exports (project_id, name);

CREATE TABLE imports (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    export_id TEXT COLLATE "C" NOT NULL REFERENCES exports (id) ON DELETE CASCADE,
    created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX imports_project_export ON imports (project_id, export_id);
CREATE INDEX imports_export ON imports (export_id);

CREATE TABLE exported_fleets (
    export_id TEXT COLLATE "C" NOT NULL REFERENCES exports (id) ON DELETE CASCADE,
    fleet_id TEXT COLLATE "C" NOT NULL REFERENCES fleets (id),
    PRIMARY KEY (export_id, fleet_id)
);
CREATE INDEX exported_fleets_fleet ON exported_fleets (fleet_id);

CREATE TABLE exported_gateways (
    export_id TEXT COLLATE "C" NOT NULL REFERENCES exports (id) ON DELETE CASCADE,
    gateway_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (export_id, gateway_id)
);
CREATE INDEX exported_gateways_gateway ON exported_gateways (gateway_id);

-- Extra tokens of users: only their hashes are kept.
CREATE TABLE tokens (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
    name TEXT COLLATE "C" NOT NULL,
    token_sha256 TEXT COLLATE "C" NOT NULL,
    scopes TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
);
CREATE UNIQUE INDEX tokens_hash ON tokens (token_sha256);
CREATE UNIQUE INDEX tokens_user_name ON tokens (user_id, name);

-- What machines tell of running jobs, one row for each time they were asked.
CREATE TABLE job_metrics (
    job_id TEXT COLLATE "C" NOT NULL,
    collected_at BIGINT NOT NULL,
    point TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (job_id, collected_at)
);
CREATE INDEX job_metrics_collected ON job_metrics (collected_at);

-- The text that a job's GPU exporter gave last.
CREATE TABLE job_exporters (
    job_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    collected_at BIGINT NOT NULL,
    text TEXT COLLATE "C" NOT NULL
);

-- What machines said about their health.
CREATE TABLE instance_health (
    instance_id TEXT COLLATE "C" NOT NULL,
    collected_at BIGINT NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    events TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (instance_id, collected_at)
);
CREATE INDEX instance_health_collected ON instance_health (collected_at);
