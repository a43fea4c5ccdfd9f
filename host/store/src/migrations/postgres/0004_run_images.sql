-- What the registries told of a run's images when it was submitted or updated.
ALTER TABLE run_data ADD COLUMN images TEXT COLLATE "C";
