//! Which profile applies.

use super::PlanError;
use crate::config::{Profile, ProfilesConfig};

/// What a person says about profiles.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ProfileChoice {
    /// Nothing: the one marked as default, if any.
    #[default]
    Default,
    /// `--no-profile`: none, not even the default.
    None,
    /// `--profile NAME`.
    Named(String),
}

/// The profile that applies; `files` are those of the current folder and of the home folder, in this order.
///
/// # Errors
/// [`PlanError::NoProfile`] if a named one is in none of them.
pub fn choose_profile(
    choice: &ProfileChoice,
    files: &[ProfilesConfig],
) -> Result<Profile, PlanError> {
    match choice {
        ProfileChoice::None => Ok(Profile::empty("no-profile")),
        ProfileChoice::Named(name) => {
            let found = files.iter().find_map(|file| file.named(name));
            found
                .cloned()
                .ok_or_else(|| PlanError::NoProfile(name.clone()))
        }
        ProfileChoice::Default => {
            let found = files.iter().find_map(ProfilesConfig::default_entry);
            Ok(found.cloned().unwrap_or_else(|| Profile::empty("default")))
        }
    }
}
