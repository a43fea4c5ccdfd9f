//! YAML for the client's own file; configurations of runs are read by [`crate::cmd::apply`].

use dstack_api::config::{ClientConfig, Mode};
use serde_json::Value;

use crate::local_config::Project;
use crate::settings::Token;

/// The projects in the text of `config.yml`. Keys that this version does not know are left aside.
pub(crate) fn client_config(text: &str) -> Result<Vec<Project>, String> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let parsed = dstack_api::yaml::parse::<ClientConfig>("config.yml", text, Mode::Tolerant)
        .map_err(|errors| errors.to_string())?;
    let projects = parsed.value.projects.into_iter().map(|project| Project {
        name: project.name,
        url: project.url,
        token: Token(project.token.into_inner()),
        is_default: project.default == Some(true),
    });
    Ok(projects.collect())
}

/// A text as a YAML value: quoted where it would not read back as the same text.
pub(crate) fn plain(text: &str) -> String {
    dstack_api::yaml::to_yaml(&Value::from(text))
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_mean_something_else_are_quoted() {
        assert_eq!(plain("main"), "main");
        for text in [
            "yes", "012", "1e3", "", "a: b", "null", "it's", "#x", "a\nb", "~",
        ] {
            assert!(plain(text).starts_with('"'), "{text}");
        }
    }

    #[test]
    fn unknown_keys_and_an_empty_file_are_fine_and_nonsense_is_not() {
        assert_eq!(client_config("").unwrap(), Vec::new());
        let text = "projects:\n- {name: 12, url: http://x, token: t, new_key: 1}\nrepos: []\n";
        let projects = client_config(text).unwrap();
        assert_eq!(projects[0].name, "12");
        assert!(projects[0].is_default);
        assert!(
            client_config("projects: 5")
                .unwrap_err()
                .contains("config.yml:1:")
        );
    }
}
