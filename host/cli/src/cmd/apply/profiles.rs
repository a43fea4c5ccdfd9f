//! Finds the profile that goes below a configuration.

use std::path::{Path, PathBuf};

use dstack_api::config::{Mode, Profile, ProfilesConfig};

use crate::cmd::options::ProfileOptions;
use crate::cx::Cx;
use crate::error::CliError;

/// The profile of the options, of the environment, else the default one.
pub(crate) fn choose(
    options: &ProfileOptions,
    folder: &Path,
    cx: &Cx<'_>,
) -> Result<Profile, CliError> {
    if options.no_profile {
        return Ok(Profile::empty("no-profile"));
    }
    let name = match &options.profile {
        Some(name) => Some(name),
        None if cx.settings.no_profile => return Ok(Profile::empty("no-profile")),
        None => cx.settings.profile.as_ref(),
    };
    match name {
        Some(name) => named(name, folder, cx),
        None => default(folder, cx),
    }
}

/// The profile that applies where none is named. Fleets always take this one.
pub(crate) fn default(folder: &Path, cx: &Cx<'_>) -> Result<Profile, CliError> {
    for path in places(folder, cx) {
        if let Some(profile) = load(&path)?.and_then(|file| file.default_entry().cloned()) {
            return Ok(profile);
        }
    }
    Ok(Profile::empty("default"))
}

fn named(name: &str, folder: &Path, cx: &Cx<'_>) -> Result<Profile, CliError> {
    let places = places(folder, cx);
    let mut known = Vec::new();
    for path in &places {
        let Some(file) = load(path)? else { continue };
        if let Some(profile) = file.named(name) {
            return Ok(profile.clone());
        }
        known.extend(file.profiles.into_iter().map(|profile| profile.name));
    }
    let list = places
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ");
    Err(CliError::message(if known.is_empty() {
        format!("there is no profile {name}: looked into {list}")
    } else {
        format!(
            "there is no profile {name}, but {}: looked into {list}",
            known.join(", ")
        )
    }))
}

/// The files in the order in which they count: of the command's folder, the configuration's, the home folder.
fn places(folder: &Path, cx: &Cx<'_>) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = Vec::new();
    for base in [cx.folder.as_path(), folder, cx.settings.home.as_path()] {
        let yml = base.join(".dstack").join("profiles.yml");
        let yaml = yml.with_extension("yaml");
        let path = if !yml.exists() && yaml.exists() {
            yaml
        } else {
            yml
        };
        if !places.contains(&path) {
            places.push(path);
        }
    }
    places
}

fn load(path: &Path) -> Result<Option<ProfilesConfig>, CliError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(CliError::File {
                verb: "read",
                path: path.to_owned(),
                source,
            });
        }
    };
    dstack_api::yaml::parse::<ProfilesConfig>(&path.display().to_string(), &text, Mode::Strict)
        .map(|parsed| Some(parsed.value))
        .map_err(|errors| CliError::message(errors.render().trim_end()))
}
