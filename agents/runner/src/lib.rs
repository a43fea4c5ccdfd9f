//! The agent in the container: runs the job and serves its log.
