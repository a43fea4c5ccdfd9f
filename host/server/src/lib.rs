//! The control plane: routes, services, pipelines, logs.
