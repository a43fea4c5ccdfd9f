-- What backends make beside machines, written down before it is made. A row goes once the thing is gone.
CREATE TABLE side_resources (
    project_id TEXT NOT NULL REFERENCES projects (id),
    backend TEXT NOT NULL,
    provider_ref TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    region TEXT NOT NULL,
    resource_id TEXT,
    attributes TEXT NOT NULL,
    declared_at INTEGER NOT NULL,
    look_again_at INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    PRIMARY KEY (project_id, backend, provider_ref, kind, name)
);
CREATE INDEX side_resources_due ON side_resources (look_again_at);
CREATE INDEX instances_ref ON instances (provider_ref) WHERE active = 1 AND provider_ref IS NOT NULL;
