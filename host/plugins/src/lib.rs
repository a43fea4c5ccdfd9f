//! Finds backend plugins, calls them on bounded threads under a deadline, serves the host services.
