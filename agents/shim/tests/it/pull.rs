//! Pulling from a registry that wants a login. Docker allows plain HTTP to registries on the loopback.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::{Shim, fake, task};

/// `user:hunter2`
const LOGIN: &str = "Basic dXNlcjpodW50ZXIy";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Content by path: media type and bytes.
type Content = HashMap<String, (&'static str, Vec<u8>)>;

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

/// An image of one layer with one file; it cannot run anything.
fn image() -> (Content, usize) {
    let dir = tempfile::tempdir().unwrap();
    let unique = uuid::Uuid::new_v4().to_string().repeat(4096);
    std::fs::write(dir.path().join("file"), unique).unwrap();
    let tar = Command::new("tar")
        .arg("-C")
        .arg(dir.path())
        .args(["-c", "."])
        .output()
        .unwrap();
    assert!(tar.status.success());
    let layer = tar.stdout;
    let size = layer.len();
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]}
    })
    .to_string()
    .into_bytes();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": CONFIG, "size": config.len(), "digest": digest(&config)},
        "layers": [{"mediaType": LAYER, "size": size, "digest": digest(&layer)}]
    })
    .to_string()
    .into_bytes();
    let mut content = Content::new();
    content.insert("/v2/".to_owned(), ("application/json", b"{}".to_vec()));
    content.insert(
        format!("/v2/some/image/blobs/{}", digest(&config)),
        (CONFIG, config),
    );
    content.insert(
        format!("/v2/some/image/blobs/{}", digest(&layer)),
        (LAYER, layer),
    );
    for reference in ["1".to_owned(), digest(&manifest)] {
        let path = format!("/v2/some/image/manifests/{reference}");
        content.insert(path, (MANIFEST, manifest.clone()));
    }
    (content, size)
}

fn registry(content: Content) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let content = Arc::new(content);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let content = Arc::clone(&content);
            std::thread::spawn(move || answer(stream.unwrap(), &content));
        }
    });
    address
}

fn answer(mut stream: TcpStream, content: &Content) {
    let mut head = Vec::new();
    for line in BufReader::new(stream.try_clone().unwrap()).lines() {
        match line {
            Ok(line) if !line.is_empty() => head.push(line),
            _ => break,
        }
    }
    let Some(request) = head.first() else { return };
    let path = request.split(' ').nth(1).unwrap();
    let is_known = head.iter().any(|line| {
        line.split_once(": ").is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("authorization") && value == LOGIN
        })
    });
    let (status, kind, body) = match content.get(path) {
        _ if !is_known => ("401 Unauthorized", "text/plain", &Vec::new()),
        Some((kind, body)) => ("200 OK", *kind, body),
        None => ("404 Not Found", "text/plain", &Vec::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nWWW-Authenticate: Basic realm=\"r\"\r\nDocker-Distribution-Api-Version: registry/2.0\r\n\
         Docker-Content-Digest: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        digest(body),
        body.len()
    );
    // The engine may hang up early; that is its own affair.
    drop(stream.write_all(head.as_bytes()));
    if !request.starts_with("HEAD") {
        drop(stream.write_all(body));
    }
}

#[test]
fn an_image_is_pulled_with_the_tasks_login_and_its_progress_is_told() {
    let (content, size) = image();
    let address = registry(content);
    let fake = fake("exit 0");
    let shim = Shim::start("docker", &fake.runner);
    let image = format!("{address}/some/image:1");
    let mut config = task("docker-pull");
    config["image_name"] = json!(image);
    let refused = shim.task_when(&shim.submit(&config), "terminated");
    let message = refused["termination_message"].as_str().unwrap();
    assert!(message.starts_with("pullImage error: "), "{message}");
    assert_eq!(refused["image_pull_progress"], Value::Null);

    let mut config = task("docker-pull-login");
    config["image_name"] = json!(image);
    config["registry_username"] = json!("user");
    config["registry_password"] = json!("hunter2");
    // The image has no shell, so the pull works and the start does not.
    let ended = shim.task_when(&shim.submit(&config), "terminated");
    assert_eq!(
        ended["termination_reason"], "container_exited_with_error",
        "{ended}"
    );
    let progress = &ended["image_pull_progress"];
    assert_eq!(progress["total_bytes"], json!(size));
    assert_eq!(progress["extracted_bytes"], json!(size));
    assert_eq!(progress["is_total_bytes_final"], true);
    let dir = shim.task_dir(&ended);
    assert!(
        std::fs::read_to_string(dir.join("pull.log"))
            .unwrap()
            .contains("Status: ")
    );
    assert!(
        !std::fs::read_to_string(dir.join("task.json"))
            .unwrap()
            .contains("hunter2")
    );
    assert!(!shim.log().contains("hunter2"));
    drop(shim);
    let remove = || {
        Command::new("docker")
            .args(["rmi", &image])
            .output()
            .unwrap()
    };
    assert!(remove().status.success());

    // Where the image settles the runtime: the registry answers for it, but only those who may log in.
    let mut shim = Shim::new("auto", &fake.runner);
    shim.launch();
    config["id"] = json!(uuid::Uuid::new_v4().to_string());
    let pulled = shim.task_when(&shim.submit(&config), "terminated");
    assert_eq!(&pulled["image_pull_progress"], progress, "{pulled}");
    assert_eq!(shim.remove(pulled["id"].as_str().unwrap()).status, 200);
    assert!(remove().status.success());
    config["id"] = json!(uuid::Uuid::new_v4().to_string());
    config["registry_password"] = json!("wrong");
    let process = shim.task_when(&shim.submit(&config), "terminated");
    assert_eq!(process["image_pull_progress"], Value::Null, "{process}");
    assert!(shim.log().contains("runs as a process"), "{}", shim.log());
    drop(shim);
}
