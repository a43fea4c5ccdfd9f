//! A Debian with Slurm, of which tests make clusters. It stays in the folder that is built into; tests change nothing in it.

use std::fs;

use anyhow::Result;

use super::as_root;
use crate::process::{run, target};

/// The release whose Slurm is used, 24.11; an older one's knows fewer words.
const SUITE: &str = "trixie";
const MIRROR: &str = "http://deb.debian.org/debian";
const PACKAGES: &str =
    "slurm-wlm,munge,openssh-server,procps,iproute2,hostname,curl,sudo,ca-certificates";

/// Makes it unless it is there.
pub(super) fn chroot() -> Result<()> {
    let place = target().join("slurm-bed");
    let mark = place.join(format!("made-{SUITE}-1"));
    if mark.exists() {
        return Ok(());
    }
    println!("==> making a Debian with Slurm (once)");
    run(as_root("rm").arg("-rf").arg(&place))?;
    fs::create_dir_all(&place)?;
    run(as_root("debootstrap")
        .arg("--variant=minbase")
        .arg(format!("--include={PACKAGES}"))
        .arg(SUITE)
        .arg(place.join("root"))
        .arg(MIRROR))?;
    Ok(fs::write(mark, "")?)
}
