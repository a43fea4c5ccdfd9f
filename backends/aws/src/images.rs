//! Images of machines, found by name in each region.

use dstack_backend_sdk::host::{self, cache};
use dstack_backend_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::backend::Aws;
use crate::network::REMEMBERED;
use crate::params::Params;
use crate::xml::Set;

/// Account of the reference's public images.
const CPU_OWNER: &str = "142421590066";
const CPU_VERSION: &str = "0.14";
/// Account of the provider's images with NVIDIA drivers and Docker.
const GPU_OWNER: &str = "898082745236";
const GPU_NAME: &str = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 22.04) *";
const GATEWAY_NAME: &str = "ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-*";
/// Who logs in to the default images.
pub(crate) const DEFAULT_USER: &str = "ubuntu";

/// Which image, and who logs in to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) name: String,
    pub(crate) owner: Owner,
    pub(crate) user: String,
    /// One of the configuration: its firewall is left alone.
    pub(crate) is_own: bool,
}

/// Who owns an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Owner {
    /// An account, or `self`.
    Account(String),
    /// The provider's word for a known one.
    Alias(&'static str),
}

/// An image of a region.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Image {
    pub(crate) id: String,
    /// Its first disk.
    pub(crate) root_device: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Images {
    #[serde(default)]
    images_set: Set<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    image_id: String,
    creation_date: Option<String>,
    root_device_name: Option<String>,
}

impl Aws {
    /// The image of a machine.
    ///
    /// # Errors
    /// `not_found` if the configuration has own images, but none of this kind.
    pub(crate) fn wanted_image(&self, has_gpu: bool) -> Result<Wanted> {
        let Some(own) = &self.config.os_images else {
            return Ok(if has_gpu {
                default_image(GPU_NAME.to_owned(), GPU_OWNER)
            } else {
                default_image(cpu_name(), CPU_OWNER)
            });
        };
        let (own, kind) = if has_gpu {
            (&own.nvidia, "nvidia")
        } else {
            (&own.cpu, "cpu")
        };
        let own = own.as_ref().ok_or_else(|| {
            BackendError::not_found(format!("os_images has no image for {kind} machines"))
        })?;
        Ok(Wanted {
            name: own.name.clone(),
            owner: Owner::Account(own.owner.clone()),
            user: own.user.clone(),
            is_own: true,
        })
    }

    /// The newest image of this name in a region, remembered for ten minutes.
    pub(crate) fn image(&self, region: &str, wanted: &Wanted) -> Result<Image> {
        let key = format!("image/{region}/{:?}/{}", wanted.owner, wanted.name);
        cache::get_or_compute(&key, REMEMBERED, || {
            let mut params = Params::new()
                .filter("name", [&wanted.name])
                .filter("state", ["available"]);
            params = match &wanted.owner {
                Owner::Account(account) => params.list("Owner", [account]),
                Owner::Alias(alias) => params.filter("owner-alias", [alias]),
            };
            let found: Images = self.apis.ec2(region)?.read("DescribeImages", &params)?;
            let newest = found
                .images_set
                .items
                .into_iter()
                .max_by(|a, b| a.creation_date.cmp(&b.creation_date));
            let newest = newest.ok_or_else(|| {
                BackendError::not_found(format!("there is no image {:?} in {region}", wanted.name))
            })?;
            let root = newest.root_device_name.filter(|name| !name.is_empty());
            Ok(Image {
                id: newest.image_id,
                root_device: root.unwrap_or_else(|| "/dev/sda1".to_owned()),
            })
        })
    }
}

fn default_image(name: String, owner: &str) -> Wanted {
    Wanted {
        name,
        owner: Owner::Account(owner.to_owned()),
        user: DEFAULT_USER.to_owned(),
        is_own: false,
    }
}

/// Image of gateway machines.
pub(crate) fn gateway_image() -> Wanted {
    Wanted {
        owner: Owner::Alias("amazon"),
        ..default_image(GATEWAY_NAME.to_owned(), "")
    }
}

/// The server's administrator may take another edition.
fn cpu_name() -> String {
    const VERSION: &str = "DSTACK_VM_BASE_IMAGE_VERSION";
    const PREFIX: &str = "DSTACK_VM_BASE_IMAGE_PREFIX";
    // A host that hands nothing over has no other edition.
    let values = host::environment(&[VERSION, PREFIX]).unwrap_or_default();
    let text = |name: &str| values.get(name).map(|value| value.expose().clone());
    format!(
        "{}dstack-{}",
        text(PREFIX).unwrap_or_default(),
        text(VERSION)
            .filter(|version| !version.is_empty())
            .unwrap_or_else(|| CPU_VERSION.to_owned())
    )
}
