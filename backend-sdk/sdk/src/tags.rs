//! Tags of resources.

use std::collections::BTreeMap;

use dstack_backend_types::{InstanceConfiguration, JobInfo, RunInfo, Volume};

/// Most tags a backend's configuration may have.
pub const MAX_CONFIG_TAGS: usize = 25;

const MAX_KEY_LEN: usize = 60;
const MAX_VALUE_LEN: usize = 256;

/// Tags of a resource.
pub type Tags = BTreeMap<String, String>;

/// Whether every provider takes the key: 1 to 60 letters, digits, hyphens, underscores.
pub fn is_tag_key(key: &str) -> bool {
    (1..=MAX_KEY_LEN).contains(&key.len())
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Whether every provider takes the value: up to 256 letters, digits, and `. : / = _ - @ +` and blank.
pub fn is_tag_value(value: &str) -> bool {
    value.len() <= MAX_VALUE_LEN
        && value
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b" .:/=_-+@".contains(&b))
}

/// Puts tags together. The product's own win over those of the backend's configuration, and these over those of a user, so
/// that nobody overrides what an administrator has set.
pub fn merge(base: &Tags, backend: Option<&Tags>, resource: Option<&Tags>) -> Tags {
    let mut tags = base.clone();
    for (key, value) in backend.into_iter().chain(resource).flatten() {
        tags.entry(key.clone()).or_insert_with(|| value.clone());
    }
    tags
}

/// As [`merge`], without tags that some provider would refuse; those are returned apart, to be logged.
pub fn merge_valid(
    base: &Tags,
    backend: Option<&Tags>,
    resource: Option<&Tags>,
) -> (Tags, Vec<String>) {
    let (valid, refused): (Tags, Tags) = merge(base, backend, resource)
        .into_iter()
        .partition(|(key, value)| is_tag_key(key) && is_tag_value(value));
    (valid, refused.into_keys().collect())
}

/// The product's own tags of an instance: owner, project, name, user, and the `provider_ref` if there is one.
pub fn base_tags(
    project: &str,
    name: &str,
    user: Option<&str>,
    provider_ref: Option<&str>,
) -> Tags {
    let mut tags = Tags::from([
        ("owner".to_owned(), "dstack".to_owned()),
        ("dstack_project".to_owned(), project.to_owned()),
        ("dstack_name".to_owned(), name.to_owned()),
    ]);
    tags.extend(user.map(|user| ("dstack_user".to_owned(), user.to_owned())));
    tags.extend(provider_ref.map(|reference| {
        (
            crate::names::PROVIDER_REF_TAG.to_owned(),
            reference.to_owned(),
        )
    }));
    tags
}

/// All tags of an instance, with those of the backend's configuration. Tags that some provider would refuse are logged and
/// left out.
pub fn of_instance(config: &InstanceConfiguration, backend: &Tags) -> Tags {
    let base = base_tags(
        &config.project_name,
        &config.instance_name,
        Some(&config.user),
        config.provider_ref.as_deref(),
    );
    logged(&base, backend, config.tags.as_ref())
}

/// All tags of a job's container; see [`of_instance`].
pub fn of_job(run: &RunInfo, job: &JobInfo, backend: &Tags) -> Tags {
    let base = base_tags(
        &run.project_name,
        &job.job_name,
        Some(&run.user),
        job.provider_ref.as_deref(),
    );
    logged(&base, backend, run.tags.as_ref())
}

/// All tags of a volume; see [`of_instance`].
pub fn of_volume(volume: &Volume, backend: &Tags) -> Tags {
    let base = base_tags(
        &volume.project_name,
        &volume.name,
        Some(&volume.user),
        volume.provider_ref.as_deref(),
    );
    logged(&base, backend, volume.configuration.tags.as_ref())
}

fn logged(base: &Tags, backend: &Tags, resource: Option<&Tags>) -> Tags {
    let (tags, refused) = merge_valid(base, Some(backend), resource);
    if !refused.is_empty() {
        tracing::warn!(
            tags = refused.join(", "),
            "tags that providers refuse are left out"
        );
    }
    tags
}

#[cfg(test)]
mod tests {
    use super::{Tags, base_tags, is_tag_key, is_tag_value, merge, merge_valid};
    use crate::vectors::rows;

    #[test]
    fn tags_follow_the_rules() {
        for (name, rule) in [
            ("tag-key", is_tag_key as fn(&str) -> bool),
            ("tag-value", is_tag_value),
        ] {
            for row in rows(name)
                .into_iter()
                .filter(|row| row.get("quirk").is_none())
            {
                assert_eq!(
                    rule(row["input"].as_str().unwrap()),
                    row["output"],
                    "{name} {row}"
                );
            }
        }
    }

    #[test]
    fn a_lower_layer_never_overwrites() {
        for row in rows("merge-tags") {
            let layer =
                |key: &str| serde_json::from_value::<Option<Tags>>(row[key].clone()).unwrap();
            let merged = merge(
                &layer("base").unwrap(),
                layer("backend").as_ref(),
                layer("resource").as_ref(),
            );
            assert_eq!(Some(merged), layer("output"), "{row}");
        }
    }

    #[test]
    fn a_volume_has_the_tags_of_all_layers() {
        let volume = serde_json::from_value(serde_json::json!({
            "id": "00000000-0000-4000-8000-000000000001", "name": "v", "project_name": "main", "user": "me",
            "configuration": {"backend": "acme", "tags": {"a": "user", "b": "user", "c.d": "x"}},
            "provider_ref": "r1",
        }));
        let backend = Tags::from([("a".to_owned(), "backend".to_owned())]);
        let tags = super::of_volume(&volume.unwrap(), &backend);
        let text = |key: &str| tags.get(key).map(String::as_str);
        assert_eq!(
            (text("a"), text("b"), text("c.d")),
            (Some("backend"), Some("user"), None)
        );
        assert_eq!(text("dstack_name"), Some("v"));
        assert_eq!(text("dstack_provider_ref"), Some("r1"));
    }

    #[test]
    fn refused_tags_are_left_out_and_named() {
        let mine = Tags::from([
            ("a.b".to_owned(), "x".to_owned()),
            ("ok".to_owned(), "x".to_owned()),
        ]);
        let (tags, refused) = merge_valid(
            &base_tags("main", "run", Some("me"), Some("r1")),
            None,
            Some(&mine),
        );
        assert_eq!(refused, ["a.b"]);
        assert_eq!(tags["ok"], "x");
        assert_eq!(tags["dstack_provider_ref"], "r1");
    }
}
