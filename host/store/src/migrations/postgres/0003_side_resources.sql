-- What backends make beside machines, written down before it is made. A row goes once the thing is gone.
CREATE TABLE side_resources (
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    backend TEXT COLLATE "C" NOT NULL,
    provider_ref TEXT COLLATE "C" NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    region TEXT COLLATE "C" NOT NULL,
    resource_id TEXT COLLATE "C",
    attributes TEXT COLLATE "C" NOT NULL,
    declared_at BIGINT NOT NULL,
    look_again_at BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    PRIMARY KEY (project_id, backend, provider_ref, kind, name)
);
CREATE INDEX side_resources_due ON side_resources (look_again_at);
CREATE INDEX instances_ref ON instances (provider_ref) WHERE active = 1 AND provider_ref IS NOT NULL;
