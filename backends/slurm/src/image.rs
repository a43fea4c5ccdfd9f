//! Names of images as the container runtime of clusters writes them.

/// The registry that needs no name.
const USUAL: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// `nvcr.io/nvidia/cuda:12` becomes `nvcr.io#nvidia/cuda:12`: there a number sign ends the registry. Images of the usual registry
/// stand without one.
pub(crate) fn pyxis_name(image: &str) -> String {
    let Some((first, rest)) = image.split_once('/') else {
        return image.to_owned();
    };
    // As in Docker: only what looks like a host is one.
    let is_registry = first.contains('.') || first.contains(':') || first == "localhost";
    if !is_registry {
        return image.to_owned();
    }
    if USUAL.contains(&first) {
        return rest.to_owned();
    }
    format!("{first}#{rest}")
}

#[cfg(test)]
mod tests {
    use super::pyxis_name;

    #[test]
    fn only_foreign_registries_are_named() {
        for (image, name) in [
            ("ubuntu", "ubuntu"),
            ("ubuntu:24.04", "ubuntu:24.04"),
            ("dstackai/base:0.10", "dstackai/base:0.10"),
            ("docker.io/dstackai/base:1", "dstackai/base:1"),
            (
                "nvcr.io/nvidia/pytorch:24.01-py3",
                "nvcr.io#nvidia/pytorch:24.01-py3",
            ),
            ("localhost:5000/a/b:c", "localhost:5000#a/b:c"),
            ("localhost/a", "localhost#a"),
            ("ghcr.io/a/b@sha256:0123", "ghcr.io#a/b@sha256:0123"),
        ] {
            assert_eq!(pyxis_name(image), name);
        }
    }
}
