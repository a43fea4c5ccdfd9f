//! What a job with an image would run in: Docker if the engine has the image, or its registry answers for it in time.

use crate::services::unix_http;
use dstack_backend_types::services::ImageRuntime;
use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::OnceCell;

/// Engine and registry together get this long; the shim gives them as much.
const LIMIT: Duration = Duration::from_secs(3);
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// Answers of the last minute. Those who ask for one image at the same time ask the engine once.
#[derive(Debug, Default)]
pub(super) struct Images(Mutex<HashMap<String, (Instant, Answer)>>);

type Answer = Arc<OnceCell<ImageRuntime>>;

impl Images {
    pub(super) async fn runtime(&self, socket: &Path, image: &str) -> ImageRuntime {
        let answer = self.entry(image);
        let ask = || async {
            tokio::time::timeout(LIMIT, ask(socket, image))
                .await
                .unwrap_or_else(|_| process(format!("no registry answers for {image} within 3 s")))
        };
        answer.get_or_init(ask).await.clone()
    }

    fn entry(&self, image: &str) -> Answer {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (at, _)| at.elapsed() < KNOWN_FOR);
        let (_, answer) = known
            .entry(image.to_owned())
            .or_insert_with(|| (Instant::now(), Answer::default()));
        Arc::clone(answer)
    }
}

async fn ask(socket: &Path, image: &str) -> ImageRuntime {
    if !is_name(image) {
        return process(format!("{image:?} is no name of an image"));
    }
    let get = async |path: String| {
        let answer = unix_http::request(socket, "GET", &path, "", LIMIT).await;
        answer.map(|(status, _)| status)
    };
    // As for the pull itself: a name without a colon means `latest`, and `latest` is never taken from the local store.
    let is_latest = !image.contains(':') || image.contains(":latest");
    if !is_latest {
        match get(format!("/images/{image}/json")).await {
            Ok(200) => return docker(format!("{image} is here")),
            Ok(_) => {}
            Err(error) => return process(format!("no Docker engine answers: {error}")),
        }
    }
    match get(format!("/distribution/{image}/json")).await {
        Ok(200) => docker(format!("a registry has {image}")),
        // Whether the job's own login helps is seen when it comes.
        Ok(401 | 403) => docker(format!("the registry of {image} wants a login")),
        Ok(404) => process(format!("{image} is not here and no registry has it")),
        Ok(_) => process(format!(
            "{image} is not here and no registry answers for it"
        )),
        Err(error) => process(format!("no Docker engine answers: {error}")),
    }
}

/// Whether the text can stand in the engine's paths as it is.
fn is_name(image: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    image.chars().all(is_plain) && image.split('/').all(is_part)
}

const fn docker(reason: String) -> ImageRuntime {
    ImageRuntime {
        is_docker: true,
        reason,
    }
}

const fn process(reason: String) -> ImageRuntime {
    ImageRuntime {
        is_docker: false,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::{Images, is_name};
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[test]
    fn only_names_reach_the_engine() {
        for name in [
            "debian",
            "localhost:5000/a/b:1",
            "a@sha256:00ff",
            "ghcr.io/a_b/c-d:1.2",
        ] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "a/../b", "a//b", "a b", "a?x=1", "a\r\nb", "/a", "%2e"] {
            assert!(!is_name(name), "{name:?}");
        }
    }

    /// An engine with the image `here:1` and `here:latest`, whose registry has `far:1` and wants a login for `secret:1`.
    fn engine(folder: &std::path::Path) -> Arc<AtomicUsize> {
        let listener = tokio::net::UnixListener::bind(folder.join("docker.sock")).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counter.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    let head = String::from_utf8(head).unwrap();
                    let status = match head.split(' ').nth(1).unwrap() {
                        "/images/here:1/json" | "/distribution/far:1/json" => "200 OK",
                        "/images/here:latest/json" => "200 OK",
                        "/distribution/secret:1/json" => "401 Unauthorized",
                        "/distribution/broken:1/json" => "500 Internal Server Error",
                        "/distribution/slow:1/json" => std::future::pending().await,
                        _ => "404 Not Found",
                    };
                    let reply = format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}");
                    stream.write_all(reply.as_bytes()).await.unwrap();
                });
            }
        });
        asked
    }

    #[tokio::test]
    async fn the_image_settles_the_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let asked = engine(folder.path());
        let socket = folder.path().join("docker.sock");
        let images = Images::default();
        for (image, is_docker) in [
            ("here:1", true),
            ("far:1", true),
            ("secret:1", true),
            ("absent:1", false),
            ("broken:1", false),
            ("slow:1", false),
            ("not a name", false),
            // Would be pulled although it is here, and no registry has it.
            ("here:latest", false),
            ("here", false),
        ] {
            let found = images.runtime(&socket, image).await;
            assert_eq!(found.is_docker, is_docker, "{image}: {}", found.reason);
        }
        let before = asked.load(Ordering::Relaxed);
        let (one, two) = tokio::join!(
            images.runtime(&socket, "far:1"),
            images.runtime(&socket, "slow:1")
        );
        assert!(one.is_docker && !two.is_docker);
        assert_eq!(
            asked.load(Ordering::Relaxed),
            before,
            "a minute is not over"
        );
        let found = images.runtime(&folder.path().join("none"), "new:1").await;
        assert!(
            found.reason.contains("no Docker engine"),
            "{}",
            found.reason
        );
    }
}
