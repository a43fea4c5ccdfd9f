//! The files of `~/.aws`: sections of `name = value`.

use std::collections::HashMap;
use std::path::Path;

use dstack_backend_types::Secret;

use super::credentials::Credentials;
use crate::settings::AwsAccess;

/// The keys of the profile, if a file has them.
pub(super) fn keys(access: &AwsAccess) -> Option<Credentials> {
    let own = section(&access.credentials_file, &access.profile);
    let mut found = own.or_else(|| section(&access.config_file, &in_config(&access.profile)))?;
    Some(Credentials {
        key: found.remove("aws_access_key_id")?,
        secret: Secret::new(found.remove("aws_secret_access_key")?),
        token: found.remove("aws_session_token").map(Secret::new),
        until: None,
    })
}

/// The region of the profile, if a file has it.
pub(super) fn region(access: &AwsAccess) -> Option<String> {
    section(&access.config_file, &in_config(&access.profile))?.remove("region")
}

/// All sections but the first have another name in that file.
fn in_config(profile: &str) -> String {
    if profile == "default" {
        profile.to_owned()
    } else {
        format!("profile {profile}")
    }
}

fn section(path: &Path, name: &str) -> Option<HashMap<String, String>> {
    let text = std::fs::read_to_string(path).ok()?;
    let (mut found, mut inside) = (None, false);
    for line in text.lines().map(str::trim) {
        if let Some(title) = line.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
            inside = title.trim() == name;
            if inside {
                found.get_or_insert_with(HashMap::new);
            }
        } else if inside
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
            && let Some(found) = &mut found
        {
            found.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    found
}
