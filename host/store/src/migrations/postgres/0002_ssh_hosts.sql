-- How the server logs in to own hosts: keys, sealed. A row goes with its instance.
CREATE TABLE ssh_hosts (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    login TEXT COLLATE "C" NOT NULL
);
CREATE INDEX instances_ssh_host ON instances (ssh_host) WHERE active = 1 AND ssh_host IS NOT NULL;
