//! Pulls images and tells how far a pull is.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use bollard::auth::DockerCredentials;
use bollard::errors::Error as ApiError;
use bollard::models::CreateImageInfo;
use bollard::query_parameters::CreateImageOptions;
use dstack_agent_protocol::shim::{ImagePullProgress, TaskConfig};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use super::{Engine, is_not_found, message};

/// Longest time a pull may take.
const PULL_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullError {
    #[error("pull image: {0}")]
    Refused(String),
    #[error(
        "failed pulling {image}: downloaded {done}/{total} bytes ({speed}/s), errors: [{errors}]"
    )]
    Failed {
        image: String,
        done: u64,
        total: u64,
        speed: u64,
        errors: String,
    },
    #[error("image pull interrupted: downloaded {done} bytes out of {total} ({speed}/s): {cause}")]
    Interrupted {
        done: u64,
        total: u64,
        speed: u64,
        cause: &'static str,
    },
    #[error("the pull log could not be written: {0}")]
    Log(#[from] std::io::Error),
    #[error("inspect image: {0}")]
    Inspect(String),
}

/// Makes sure that the image of `config` is in the local store.
///
/// Tags other than `latest` are not pulled when they are there. The engine's messages go to `log`, sums to `progress`.
pub(crate) async fn pull(
    engine: &Engine,
    config: &TaskConfig,
    log: &Path,
    cancel: &CancellationToken,
    mut progress: impl FnMut(ImagePullProgress),
) -> Result<(), PullError> {
    let image = with_tag(&config.image_name);
    if is_kept(&image) {
        match engine.api().inspect_image(&image).await {
            Ok(_) => return Ok(()),
            Err(err) if is_not_found(&err) => {}
            Err(err) => return Err(PullError::Inspect(message(&err))),
        }
    }
    let mut log = File::create(log)?;
    let options = CreateImageOptions {
        from_image: Some(image.clone()),
        ..CreateImageOptions::default()
    };
    let mut stream = engine
        .api()
        .create_image(Some(options), None, credentials(config));
    let mut layers = Layers::default();
    let mut errors = Vec::new();
    let mut is_done = false;
    let started = Instant::now();
    let limit = tokio::time::sleep(PULL_LIMIT);
    tokio::pin!(limit);
    loop {
        let cause = tokio::select! {
            event = stream.next() => match event {
                None => break,
                Some(Ok(event)) => {
                    write_line(&mut log, &event)?;
                    is_done |= event.status.as_deref().is_some_and(|s| s.starts_with("Status:"));
                    if layers.add(&event) {
                        progress(layers.sum());
                    }
                    continue;
                }
                // Refused before the first message: wrong name, no access, no network.
                Some(Err(err @ ApiError::DockerResponseServerError { .. })) => {
                    return Err(PullError::Refused(message(&err)));
                }
                Some(Err(err)) => {
                    writeln!(log, "{err}")?;
                    errors.push(message(&err));
                    continue;
                }
            },
            () = cancel.cancelled() => "canceled",
            () = &mut limit => "time limit exceeded",
        };
        let (done, total, speed) = layers.speed(started.elapsed());
        return Err(PullError::Interrupted {
            done,
            total,
            speed,
            cause,
        });
    }
    if is_done {
        return Ok(());
    }
    let (done, total, speed) = layers.speed(started.elapsed());
    Err(PullError::Failed {
        image,
        done,
        total,
        speed,
        errors: errors.join(", "),
    })
}

/// Whether [`pull`] would find the image: it is in the local store, where that counts, or its registry answers for it. The
/// error is the reason why not.
pub(crate) async fn can_have_image(engine: &Engine, config: &TaskConfig) -> Result<(), String> {
    let image = with_tag(&config.image_name);
    if is_kept(&image) && engine.api().inspect_image(&image).await.is_ok() {
        return Ok(());
    }
    let login = credentials(config);
    match engine.api().inspect_registry_image(&image, login).await {
        Ok(_) => Ok(()),
        Err(err) => Err(message(&err)),
    }
}

/// Whether an image that is in the local store is taken from there.
fn is_kept(image: &str) -> bool {
    !image.contains(":latest")
}

/// A name without any colon means its `latest` tag.
fn with_tag(image: &str) -> String {
    if image.contains(':') {
        image.to_owned()
    } else {
        format!("{image}:latest")
    }
}

fn credentials(config: &TaskConfig) -> Option<DockerCredentials> {
    if config.registry_username.is_empty() && config.registry_password.is_empty() {
        return None;
    }
    Some(DockerCredentials {
        username: Some(config.registry_username.clone()),
        password: Some(config.registry_password.expose().to_owned()),
        ..DockerCredentials::default()
    })
}

fn write_line(log: &mut File, event: &CreateImageInfo) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    log.write_all(&line)
}

/// Progress of each layer of an image.
#[derive(Debug, Default)]
struct Layers(BTreeMap<String, Layer>);

#[derive(Debug, Default)]
struct Layer {
    downloaded: u64,
    extracted: u64,
    total: u64,
    /// Whether the total is right even if it is 0.
    is_settled: bool,
}

impl Layers {
    /// Takes in one message; whether it was about a layer.
    fn add(&mut self, event: &CreateImageInfo) -> bool {
        let (Some(id), Some(status)) = (&event.id, &event.status) else {
            return false;
        };
        let known = [
            "Pulling fs layer",
            "Waiting",
            "Verifying Checksum",
            "Already exists",
            "Downloading",
            "Download complete",
            "Extracting",
            "Pull complete",
        ];
        if !known.contains(&status.as_str()) {
            return false;
        }
        let layer = self.0.entry(id.clone()).or_default();
        let detail = event.progress_detail.as_ref();
        let number = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok());
        let current = number(detail.and_then(|detail| detail.current));
        let total = number(detail.and_then(|detail| detail.total));
        layer.is_settled = matches!(status.as_str(), "Already exists" | "Pull complete");
        match status.as_str() {
            "Downloading" => {
                layer.downloaded = current.unwrap_or(layer.downloaded);
                layer.total = total.unwrap_or(layer.total);
            }
            "Download complete" => layer.downloaded = layer.total,
            // Without a total the engine counts seconds here, not bytes.
            "Extracting" if total.is_some() => {
                layer.total = total.unwrap_or(layer.total);
                layer.downloaded = layer.total;
                layer.extracted = current.unwrap_or(layer.extracted);
            }
            "Pull complete" => {
                layer.downloaded = layer.total;
                layer.extracted = layer.total;
            }
            _ => {}
        }
        true
    }

    fn sum(&self) -> ImagePullProgress {
        let layers = || self.0.values();
        ImagePullProgress {
            downloaded_bytes: layers().map(|layer| layer.downloaded).sum(),
            extracted_bytes: layers().map(|layer| layer.extracted).sum(),
            total_bytes: layers().map(|layer| layer.total).sum(),
            is_total_bytes_final: layers().all(|layer| layer.total > 0 || layer.is_settled),
        }
    }

    /// Bytes downloaded, bytes known, bytes a second.
    fn speed(&self, elapsed: Duration) -> (u64, u64, u64) {
        let sum = self.sum();
        let speed = sum.downloaded_bytes.saturating_mul(1000)
            / u64::try_from(elapsed.as_millis())
                .unwrap_or(u64::MAX)
                .max(1);
        (sum.downloaded_bytes, sum.total_bytes, speed)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn add(layers: &mut Layers, id: &str, status: &str, current: i64, total: i64) -> bool {
        let event = json!({"id": id, "status": status,
            "progressDetail": {"current": current, "total": total}});
        layers.add(&serde_json::from_value(event).unwrap())
    }

    #[test]
    fn layers_add_up() {
        let mut layers = Layers::default();
        assert!(!add(&mut layers, "16", "Pulling from library/debian", 0, 0));
        assert!(!layers.add(&serde_json::from_value(json!({"status": "Waiting"})).unwrap()));
        let bare = json!({"id": "b", "status": "Pulling fs layer", "progressDetail": {}});
        assert!(layers.add(&serde_json::from_value(bare).unwrap()));
        assert!(add(&mut layers, "a", "Downloading", 40, 100));
        let sum = layers.sum();
        assert_eq!((sum.downloaded_bytes, sum.total_bytes), (40, 100));
        assert!(!sum.is_total_bytes_final);
        add(&mut layers, "b", "Already exists", 0, 0);
        assert!(layers.sum().is_total_bytes_final);
        add(&mut layers, "a", "Download complete", 0, 0);
        assert_eq!(layers.sum().downloaded_bytes, 100);
        add(&mut layers, "a", "Extracting", 30, 100);
        assert_eq!(layers.sum().extracted_bytes, 30);
        add(&mut layers, "a", "Pull complete", 0, 0);
        let expected = ImagePullProgress {
            downloaded_bytes: 100,
            extracted_bytes: 100,
            total_bytes: 100,
            is_total_bytes_final: true,
        };
        assert_eq!(layers.sum(), expected);
    }

    #[test]
    fn only_names_without_a_colon_get_a_tag() {
        assert_eq!(with_tag("debian"), "debian:latest");
        assert_eq!(with_tag("debian:12"), "debian:12");
        assert_eq!(with_tag("localhost:5000/debian"), "localhost:5000/debian");
    }
}
