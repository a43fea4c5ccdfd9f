//! Commands, screens, local configuration, attach.
