//! HTTP and YAML model: every request, response and configuration, with validation.
