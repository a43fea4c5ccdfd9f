//! Inspects, opens and calls one backend plugin.
