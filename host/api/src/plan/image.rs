//! Names of container images, and the images used when none is named.

use dstack_backend_types::RegistryAuth;

/// A name of an image in its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageName {
    /// The name without tag and digest.
    pub image: String,
    /// Host of the registry; absent means Docker Hub.
    pub registry: Option<String>,
    /// Repository in the registry; Docker Hub's official ones are in `library/`.
    pub repo: String,
    /// Tag.
    pub tag: String,
    /// Digest, which goes before the tag.
    pub digest: Option<String>,
}

impl ImageName {
    /// Takes a name apart.
    pub fn parse(text: &str) -> Self {
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.to_owned())),
            None => (text, None),
        };
        // A colon after the last slash separates the tag; one before it belongs to the registry's port.
        let (image, tag) = match rest.rsplit_once(':') {
            Some((image, tag)) if !tag.contains('/') => (image, tag),
            _ => (rest, "latest"),
        };
        let (registry, repo) = match image.split_once('/') {
            Some((host, repo)) if host.contains(['.', ':']) || host == "localhost" => {
                (Some(host.to_owned()), repo.to_owned())
            }
            Some(_) => (None, image.to_owned()),
            None => (None, format!("library/{image}")),
        };
        Self {
            image: image.to_owned(),
            registry,
            repo,
            tag: tag.to_owned(),
            digest,
        }
    }
}

/// The images used when none is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultImages {
    /// Repository of the default images.
    pub base: String,
    /// Their version.
    pub version: String,
    /// Their Ubuntu version.
    pub ubuntu: String,
    /// The image with a Docker daemon.
    pub docker: String,
}

impl Default for DefaultImages {
    fn default() -> Self {
        Self {
            base: "dstackai/base".to_owned(),
            version: "0.16".to_owned(),
            ubuntu: "24.04".to_owned(),
            docker: "dstackai/dind".to_owned(),
        }
    }
}

impl DefaultImages {
    /// The image without or with the CUDA compiler.
    pub fn plain(&self, nvcc: bool) -> String {
        let kind = if nvcc { "devel" } else { "base" };
        format!(
            "{}:{}-{kind}-ubuntu{}",
            self.base, self.version, self.ubuntu
        )
    }

    /// The image for machines with Elastic Fabric Adapter; others than the default ones stay as they are.
    pub fn for_efa(&self, image: &str) -> String {
        let efa = format!(
            "{}:{}-devel-efa-ubuntu{}",
            self.base, self.version, self.ubuntu
        );
        if image == self.plain(false) || image == self.plain(true) {
            efa
        } else {
            image.to_owned()
        }
    }
}

/// A registry for images that name none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultRegistry {
    /// Host.
    pub host: String,
    /// Login, if it needs one.
    pub auth: Option<RegistryAuth>,
}

impl DefaultRegistry {
    /// The image's full name and the login to use, unless the image names a registry itself.
    pub fn apply(
        &self,
        image: String,
        auth: Option<RegistryAuth>,
    ) -> (String, Option<RegistryAuth>) {
        match ImageName::parse(&image).registry {
            Some(_) => (image, auth),
            None => (
                format!("{}/{image}", self.host),
                auth.or_else(|| self.auth.clone()),
            ),
        }
    }
}
