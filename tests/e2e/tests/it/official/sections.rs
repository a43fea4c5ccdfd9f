//! The official client's Python interface: one script for each section of the HTTP interface.

use anyhow::Result;
use dstack_e2e::fleet;

use super::{both_backends, script};

fn section(name: &str) -> Result<()> {
    let cloud = tempfile::tempdir()?;
    let env = [("DSTACK_ENABLE_PROMETHEUS_METRICS", "1")];
    let mut server = both_backends("process", cloud.path(), &env)?;
    fleet(&server, 1)?;
    script(&server, name)?;
    server.stop()?;
    Ok(())
}

macro_rules! sections {
    ($($name:ident)+) => {$(
        #[test]
        fn $name() -> Result<()> {
            section(concat!(stringify!($name), ".py"))
        }
    )+};
}

sections! {
    users projects repos runs fleets volumes gateways secrets_ events metrics exports others
}
