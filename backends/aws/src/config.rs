//! The configuration. Names and defaults are those of the reference's `config.yml`.

use std::collections::BTreeMap;

use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::schemars::{self, JsonSchema};
use serde::{Deserialize, Serialize};

/// Regions of a configuration that names none.
pub(crate) const DEFAULT_REGIONS: &[&str] = &[
    "us-east-1",
    "us-east-2",
    "us-west-1",
    "us-west-2",
    "ap-southeast-1",
    "ca-central-1",
    "eu-central-1",
    "eu-west-1",
    "eu-west-2",
    "eu-west-3",
    "eu-north-1",
];

/// What stands in `config.yml` under `type: aws`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AwsConfig {
    /// Regions to use. Those of the United States, Canada and Europe that are open to every account if there are none.
    #[serde(default)]
    pub(crate) regions: Option<Vec<String>>,
    /// Name (tag `Name`) of the VPC to use in every region. Not together with `vpc_ids`.
    #[serde(default)]
    pub(crate) vpc_name: Option<String>,
    /// Ids of the VPCs to use, by region. Not together with `vpc_name`.
    #[serde(default)]
    pub(crate) vpc_ids: Option<BTreeMap<String, String>>,
    /// Whether the default VPC is used in regions without an entry in `vpc_ids`. True unless said.
    #[serde(default)]
    pub(crate) default_vpcs: Option<bool>,
    /// Whether machines get public addresses. True unless said; without them private subnets with a way out are used.
    #[serde(default)]
    pub(crate) public_ips: Option<bool>,
    /// Name of the IAM instance profile of machines.
    #[serde(default)]
    pub(crate) iam_instance_profile: Option<String>,
    /// Tags of everything that is made.
    #[serde(default)]
    pub(crate) tags: Option<tags::Tags>,
    /// Own images of machines.
    #[serde(default)]
    pub(crate) os_images: Option<OsImages>,
    /// Further instance types or families (`p4d.`) to offer, which were not tried with this backend.
    #[serde(default)]
    pub(crate) experimental_instance_types: Option<Vec<String>>,
    /// Address that all requests are sent to instead of those of AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) endpoint_url: Option<String>,
    /// How to log in.
    pub(crate) creds: AwsCreds,
}

/// Own images, which must have what the default ones have.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OsImages {
    /// Image of machines without GPU.
    #[serde(default)]
    pub(crate) cpu: Option<OsImage>,
    /// Image of machines with NVIDIA GPUs.
    #[serde(default)]
    pub(crate) nvidia: Option<OsImage>,
}

/// One image, found by name in each region.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OsImage {
    /// Name of the image (AMI).
    pub(crate) name: String,
    /// Account that owns it: 12 digits, or `self`.
    #[serde(default = "own_account")]
    pub(crate) owner: String,
    /// User that logs in.
    pub(crate) user: String,
}

fn own_account() -> String {
    "self".to_owned()
}

/// Credentials.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AwsCreds {
    /// `access_key`: keys of an IAM user. `default`: those of the server's surroundings, which are variables of the environment,
    /// then the role of the container or machine it runs on.
    #[serde(rename = "type")]
    pub(crate) kind: CredsKind,
    /// The key's id, of type `access_key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) access_key: Option<Secret<String>>,
    /// The key itself, of type `access_key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret_key: Option<Secret<String>>,
}

/// Where credentials come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CredsKind {
    /// The configuration.
    AccessKey,
    /// The server's surroundings.
    Default,
}

impl AwsCreds {
    /// Both keys of the configuration; `None` if they come from elsewhere.
    ///
    /// # Errors
    /// `auth` that names the missing one.
    pub(crate) fn own_keys(&self) -> Result<Option<(&Secret<String>, &Secret<String>)>> {
        let has = |key: &&Secret<String>| !key.expose().trim().is_empty();
        let access = self.access_key.as_ref().filter(has);
        let secret = self.secret_key.as_ref().filter(has);
        let missing = |field: &str| {
            Err(BackendError::auth(
                format!("{field} is missing: credentials of type access_key have both keys"),
                [field],
            ))
        };
        match (self.kind, access, secret) {
            (CredsKind::Default, _, _) => Ok(None),
            (CredsKind::AccessKey, Some(access), Some(secret)) => Ok(Some((access, secret))),
            (CredsKind::AccessKey, None, _) => missing("creds.access_key"),
            (CredsKind::AccessKey, _, None) => missing("creds.secret_key"),
        }
    }
}

impl AwsConfig {
    /// Regions, those that stand there or the usual ones.
    pub(crate) fn regions(&self) -> Vec<String> {
        match self.regions.as_deref() {
            Some(regions) if !regions.is_empty() => regions.to_vec(),
            _ => DEFAULT_REGIONS.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    pub(crate) fn has_public_ips(&self) -> bool {
        self.public_ips.unwrap_or(true)
    }

    pub(crate) fn uses_default_vpcs(&self) -> bool {
        self.default_vpcs.unwrap_or(true)
    }

    pub(crate) fn tags(&self) -> tags::Tags {
        self.tags.clone().unwrap_or_default()
    }

    /// What can be found wrong without asking.
    pub(crate) fn check(&self) -> Result<()> {
        self.creds.own_keys()?;
        let invalid = |what: String| Err(BackendError::invalid(what));
        for region in self.regions() {
            if !is_region(&region) {
                return invalid(format!("regions: {region:?} is no name of a region"));
            }
        }
        if self.vpc_name.is_some() && self.vpc_ids.is_some() {
            return invalid("only one of vpc_name and vpc_ids can be given".to_owned());
        }
        if !self.uses_default_vpcs() {
            let Some(ids) = &self.vpc_ids else {
                if self.vpc_name.is_some() {
                    return self.check_tags();
                }
                return invalid("default_vpcs: false needs vpc_name or vpc_ids".to_owned());
            };
            let missing = |region: &String| !ids.contains_key(region);
            if let Some(region) = self.regions().into_iter().find(missing) {
                return invalid(format!(
                    "vpc_ids: no VPC for region {region}, and default_vpcs is false"
                ));
            }
        }
        self.check_images()?;
        self.check_tags()
    }

    fn check_images(&self) -> Result<()> {
        let images = self.os_images.iter();
        for image in images.flat_map(|images| images.cpu.iter().chain(&images.nvidia)) {
            let is_account =
                image.owner.len() == 12 && image.owner.bytes().all(|b| b.is_ascii_digit());
            if image.owner != "self" && !is_account {
                return Err(BackendError::invalid(format!(
                    "os_images: owner {:?} is neither 12 digits nor self",
                    image.owner
                )));
            }
        }
        Ok(())
    }

    fn check_tags(&self) -> Result<()> {
        let tags = self.tags();
        if tags.len() > tags::MAX_CONFIG_TAGS {
            return Err(BackendError::invalid(format!(
                "tags: {} of them, at most {}",
                tags.len(),
                tags::MAX_CONFIG_TAGS
            )));
        }
        let bad = tags.iter().find(|(key, value)| !is_tag(key, value));
        match bad {
            Some((key, _)) => Err(BackendError::invalid(format!(
                "tags: key or value of {key:?} is none that AWS takes"
            ))),
            None => Ok(()),
        }
    }
}

/// Words such as `us-gov-west-1`; they become part of an address.
pub(crate) fn is_region(word: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (4..=32).contains(&word.len()) && word.bytes().all(is_plain)
}

/// Source: "Tag naming limits and requirements" of the EC2 user guide.
fn is_tag(key: &str, value: &str) -> bool {
    let fits = |text: &str| {
        text.chars()
            .all(|c| c.is_alphanumeric() || " _.:/=+-@".contains(c))
    };
    let is_reserved = key.to_ascii_lowercase().starts_with("aws:");
    (1..=128).contains(&key.chars().count())
        && value.chars().count() <= 256
        && !is_reserved
        && fits(key)
        && fits(value)
}

#[cfg(test)]
mod tests {
    use super::AwsConfig;
    use serde_json::{Value, json};

    fn problem(more: &Value) -> Option<String> {
        let mut config = json!({"creds": {"type": "default"}});
        for (key, value) in more.as_object().unwrap() {
            config[key] = value.clone();
        }
        let config: AwsConfig = serde_json::from_value(config).unwrap();
        config.check().err().map(|error| error.message)
    }

    #[test]
    fn contradictions_are_found_without_asking() {
        let ids = json!({"us-east-1": "vpc-1"});
        for (good, more) in [
            (true, json!({})),
            (
                true,
                json!({"regions": ["us-east-1"], "vpc_ids": ids, "default_vpcs": false}),
            ),
            (true, json!({"vpc_name": "mine", "default_vpcs": false})),
            (
                false,
                json!({"creds": {"type": "access_key", "access_key": "a"}}),
            ),
            (
                false,
                json!({"creds": {"type": "access_key", "secret_key": "a"}}),
            ),
            (true, json!({"tags": {"Cost Centre": "a:b/c=d+e-f@g"}})),
            (false, json!({"vpc_name": "mine", "vpc_ids": ids})),
            (false, json!({"default_vpcs": false})),
            (false, json!({"vpc_ids": ids, "default_vpcs": false})),
            (false, json!({"regions": ["us-east-1/../x"]})),
            (false, json!({"tags": {"aws:mine": "x"}})),
            (false, json!({"tags": {"a": "b;c"}})),
            (
                false,
                json!({"os_images": {"cpu": {"name": "n", "owner": "12", "user": "u"}}}),
            ),
        ] {
            assert_eq!(
                problem(&more).is_none(),
                good,
                "{more}: {:?}",
                problem(&more)
            );
        }
    }
}
