//! Which private key opens the job: the user's own, kept by the server and cached here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use dstack_api::runs::Run;
use dstack_api::users::UserWithCreds;
use sha1::{Digest as _, Sha1};

use super::config::write_private;
use crate::cx::{Cx, Here};
use crate::error::CliError;

/// How long a cached key is used without a question.
const FRESH: Duration = Duration::from_secs(600);

/// The file of the private key that the run was submitted with.
pub(super) fn identity(
    run: &Run,
    given: Option<&Path>,
    here: &Here,
    cx: &Cx<'_>,
) -> Result<PathBuf, CliError> {
    if let Some(given) = given {
        let path = cx.expand(&given.to_string_lossy(), &cx.folder);
        return match fs::metadata(&path) {
            Ok(_) => Ok(path),
            Err(source) => Err(CliError::File {
                verb: "read",
                path,
                source,
            }),
        };
    }
    let folder = cx.settings.home.join(".dstack/ssh");
    let wanted = run.run_spec.ssh_key_pub.as_deref().map(str::trim);
    let is_wanted = |path: &Path| {
        fs::read_to_string(path.with_extension("pub"))
            .is_ok_and(|text| Some(text.trim()) == wanted && path.exists())
    };
    // The name is that of the reference's client, so both use one copy.
    let digest = Sha1::digest(here.project.token.0.as_bytes());
    let name: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let cached = folder.join(name);
    if is_fresh(&cached) && is_wanted(&cached) {
        return Ok(cached);
    }
    let user: UserWithCreds = here.client.ask("/api/users/get_my_user")?;
    if let (Some(private), Some(public)) = (&user.ssh_private_key, &user.user.ssh_public_key) {
        write_private(&cached, private.expose())?;
        write_private(&cached.with_extension("pub"), public)?;
    }
    if is_wanted(&cached) {
        return Ok(cached);
    }
    let old = folder.join("id_rsa");
    if is_wanted(&old) {
        return Ok(old);
    }
    Err(CliError::message(format!(
        "the run was submitted with another SSH key than that of user {}; pass its private key by --ssh-identity",
        user.user.username
    )))
}

/// The public half of a private key that was named: the file beside it with `.pub`.
pub(crate) fn public_half(given: &Path, cx: &Cx<'_>) -> Result<String, CliError> {
    let private = cx.expand(&given.to_string_lossy(), &cx.folder);
    let mut name = private.into_os_string();
    name.push(".pub");
    let path = PathBuf::from(name);
    fs::read_to_string(&path)
        .map(|text| text.trim().to_owned())
        .map_err(|source| CliError::File {
            verb: "read",
            path,
            source,
        })
}

/// The public line of a private key without a passphrase, derived from it; `None` for everything else.
pub(crate) fn public_line(private: &Path) -> Option<String> {
    // An empty passphrase, so that a key with one is a refusal instead of a question nobody sees.
    let answer = Command::new("ssh-keygen")
        .args(["-y", "-P", "", "-f"])
        .arg(private)
        .output()
        .ok()
        .filter(|answer| answer.status.success())?;
    let line = String::from_utf8(answer.stdout).ok()?;
    Some(line.trim().to_owned())
}

fn is_fresh(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|meta| meta.modified());
    modified.is_ok_and(|at| {
        SystemTime::now()
            .duration_since(at)
            .is_ok_and(|age| age < FRESH)
    })
}
