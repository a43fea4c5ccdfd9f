//! What runs take from their images, with a real registry.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use oci_client::client::{ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::manifest::{IMAGE_CONFIG_MEDIA_TYPE, ImageIndexEntry, OciImageIndex};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, Reference};
use serde_json::{Value, json};

use crate::client::{Answer, TestServer};

/// `pusher`, `right`, as `htpasswd -B` writes it.
const USERS: &str = "pusher:$2b$04$ECfdgXicznwUTYPCaP2It.4a/ZgvQea963sX0ptfOsRoHdkBwGX8m\n";

/// Debian's `docker-registry` on a free port of this machine.
struct Registry {
    process: Child,
    host: String,
    login: RegistryAuth,
    _folder: tempfile::TempDir,
}

impl Registry {
    fn start(with_login: bool) -> Self {
        // The tests of one process share it.
        drop(rustls::crypto::ring::default_provider().install_default());
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let users = folder.path().join("users");
        std::fs::write(&users, USERS).unwrap();
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": folder.path().join("blobs")}},
            "http": {"addr": format!("127.0.0.1:{port}")},
        });
        if with_login {
            config["auth"] = json!({"htpasswd": {"realm": "tests", "path": users}});
        }
        let file = folder.path().join("config.yml");
        std::fs::write(&file, config.to_string()).unwrap();
        let process = spawn(&file);
        let registry = Self {
            process,
            host: format!("127.0.0.1:{port}"),
            login: if with_login {
                RegistryAuth::Basic("pusher".to_owned(), "right".to_owned())
            } else {
                RegistryAuth::Anonymous
            },
            _folder: folder,
        };
        registry.wait();
        registry
    }

    fn wait(&self) {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .build()
            .into();
        for _ in 0..600 {
            if agent
                .get(format!("http://{}/v2/", self.host))
                .call()
                .is_ok()
            {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        panic!("the registry does not answer");
    }

    fn push(&self, name: &str, config: &Value) {
        block_on(async {
            let image = self.reference(name);
            let layer = ImageLayer::oci_v1(b"no files".to_vec(), None);
            let config = Config::new(
                config.to_string().into_bytes(),
                IMAGE_CONFIG_MEDIA_TYPE.to_owned(),
                None,
            );
            self.client()
                .push(&image, &[layer], config, &self.login, None)
                .await
                .unwrap();
        });
    }

    /// Pushes an index of the images of two architectures.
    fn push_index(&self, name: &str, architectures: &[&str]) {
        let mut entries = Vec::new();
        for architecture in architectures {
            let tag = format!("{name}-{architecture}");
            let config = json!({"architecture": architecture, "os": "linux", "config": {"Cmd": ["/on", architecture]}});
            self.push(&tag, &config);
            entries.push(block_on(self.entry(&tag, architecture)));
        }
        let index = OciImageIndex {
            schema_version: 2,
            media_type: Some(oci_client::manifest::OCI_IMAGE_INDEX_MEDIA_TYPE.to_owned()),
            manifests: entries,
            artifact_type: None,
            annotations: None,
        };
        block_on(async {
            self.client()
                .push_manifest_list(&self.reference(name), &self.login, index)
                .await
                .unwrap();
        });
    }

    async fn entry(&self, tag: &str, architecture: &str) -> ImageIndexEntry {
        let kinds = [oci_client::manifest::OCI_IMAGE_MEDIA_TYPE];
        let (bytes, digest) = self
            .client()
            .pull_manifest_raw(&self.reference(tag), &self.login, &kinds)
            .await
            .unwrap();
        serde_json::from_value(json!({
            "mediaType": kinds[0],
            "digest": digest,
            "size": bytes.len(),
            "platform": {"os": "linux", "architecture": architecture},
        }))
        .unwrap()
    }

    fn reference(&self, name: &str) -> Reference {
        self.image(name).parse().unwrap()
    }

    fn image(&self, name: &str) -> String {
        format!("{}/tests/{name}", self.host)
    }

    fn client(&self) -> Client {
        Client::new(ClientConfig {
            protocol: ClientProtocol::Http,
            ..ClientConfig::default()
        })
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

fn spawn(config: &Path) -> Child {
    Command::new("docker-registry")
        .arg("serve")
        .arg(config)
        .env("OTEL_TRACES_EXPORTER", "none")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("Debian's package docker-registry is installed by `cargo xtask test`")
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

fn plan(server: &TestServer, configuration: &Value) -> Answer {
    let spec = json!({"run_name": "one", "configuration": configuration});
    server.post(
        "/api/project/main/runs/get_plan",
        json!({"run_spec": spec, "max_offers": 1}),
    )
}

fn job(answer: &Answer) -> &Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    &answer.body["job_plans"][0]["job_spec"]
}

fn message(answer: &Answer) -> &str {
    assert_eq!(answer.status, 400, "{}", answer.text);
    answer.body["detail"][0]["msg"].as_str().unwrap()
}

fn quiet(with: &[(&str, &str)]) -> TestServer {
    let mut vars = vec![("DSTACK_LOCAL_BACKEND_ENABLED", "0")];
    vars.extend(with);
    TestServer::start(&vars)
}

#[test]
fn an_image_tells_what_it_starts_and_as_whom() {
    let registry = Registry::start(false);
    registry.push(
        "app:1",
        &json!({"architecture": "arm64", "os": "linux", "config":
            {"User": "1000:1000", "Entrypoint": ["/serve"], "Cmd": ["--port", "80"]}}),
    );
    let server = quiet(&[]);
    let image = registry.image("app:1");
    let answer = plan(
        &server,
        &json!({"type": "service", "image": image, "port": 80}),
    );
    let made = job(&answer);
    assert_eq!(made["commands"], json!(["/serve", "--port", "80"]));
    assert_eq!(made["user"]["uid"], 1000);
    assert_eq!(made["requirements"]["resources"]["cpu"]["arch"], "arm");
    // What the user says goes before.
    let own = json!({"type": "task", "image": image, "commands": ["true"], "user": "root", "resources": {"cpu": "x86:1.."}});
    let answer = plan(&server, &own);
    assert_eq!(job(&answer)["user"]["username"], "root");
    assert_eq!(
        job(&answer)["requirements"]["resources"]["cpu"]["arch"],
        "x86"
    );

    let spec = json!({"run_name": "one", "configuration": {"type": "task", "image": image}});
    let run = server.post(
        "/api/project/main/runs/apply",
        json!({"plan": {"run_spec": spec, "current_resource": null}, "force": false}),
    );
    assert_eq!(run.status, 200, "{}", run.text);
    assert_eq!(
        run.body["jobs"][0]["job_spec"]["commands"],
        json!(["/serve", "--port", "80"])
    );
}

#[test]
fn an_image_for_several_architectures_fits_all_of_them() {
    let registry = Registry::start(false);
    registry.push_index("many:1", &["arm64", "amd64"]);
    registry.push_index("arm:1", &["arm64"]);
    let server = quiet(&[]);
    let many = plan(
        &server,
        &json!({"type": "task", "image": registry.image("many:1")}),
    );
    assert_eq!(job(&many)["commands"], json!(["/on", "amd64"]));
    assert_eq!(
        job(&many)["requirements"]["resources"]["cpu"]["arch"],
        Value::Null
    );
    let arm = plan(
        &server,
        &json!({"type": "task", "image": registry.image("arm:1")}),
    );
    assert_eq!(job(&arm)["commands"], json!(["/on", "arm64"]));
    assert_eq!(job(&arm)["requirements"]["resources"]["cpu"]["arch"], "arm");
}

#[test]
fn what_no_registry_has_is_refused_before_a_machine_is_paid_for() {
    let registry = Registry::start(false);
    let server = quiet(&[]);
    let image = registry.image("nothing:1");
    let bare = json!({"type": "task", "image": image});
    let text = plan(&server, &bare);
    assert!(
        message(&text).starts_with(&format!(
            "Error pulling configuration for image '{image}' from the docker registry: "
        )),
        "{}",
        text.text
    );
    let run =
        json!({"run_spec": {"run_name": "one", "configuration": bare}, "current_resource": null});
    let refused = server.post(
        "/api/project/main/runs/apply",
        json!({"plan": run, "force": false}),
    );
    assert_eq!(refused.status, 400);
    let none = server.post("/api/project/main/runs/get", json!({"run_name": "one"}));
    assert_eq!(none.status, 400, "nothing was stored: {}", none.text);
    // An image may be on own machines without being in a registry; what to start is said here.
    let said = json!({"type": "task", "image": image, "commands": ["true"]});
    assert_eq!(plan(&server, &said).status, 200);
}

#[test]
fn a_registry_that_does_not_answer_stops_only_runs_that_need_it() {
    let server = quiet(&[]);
    let image = format!("127.0.0.1:{}/app:1", free_port());
    let said = json!({"type": "task", "image": image, "commands": ["true"]});
    assert_eq!(job(&plan(&server, &said))["user"], Value::Null);
    let bare = plan(&server, &json!({"type": "task", "image": image}));
    assert!(
        message(&bare).contains("cannot be reached"),
        "{}",
        bare.text
    );
}

#[test]
fn logins_come_from_secrets_and_are_told_to_nobody() {
    let registry = Registry::start(true);
    registry.push(
        "app:1",
        &json!({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/private"]}}),
    );
    let server = quiet(&[]);
    let image = registry.image("app:1");
    let with = |password: &str| json!({"type": "task", "image": image, "registry_auth": {"username": "pusher", "password": password}});
    let unknown = plan(&server, &with("${{ secrets.key }}"));
    assert!(
        message(&unknown).contains("secrets.key"),
        "{}",
        unknown.text
    );
    let set = server.post(
        "/api/project/main/secrets/create_or_update",
        json!({"name": "key", "value": "right"}),
    );
    assert_eq!(set.status, 200, "{}", set.text);
    let known = plan(&server, &with("${{ secrets.key }}"));
    assert_eq!(job(&known)["commands"], json!(["/private"]));
    let wrong = plan(&server, &with("wr0ng"));
    assert!(message(&wrong).contains("registry_auth"), "{}", wrong.text);
    assert!(!wrong.text.contains("wr0ng"));
    let anonymous = plan(&server, &json!({"type": "task", "image": image}));
    assert!(
        message(&anonymous).contains("registry_auth"),
        "{}",
        anonymous.text
    );
}

#[test]
fn images_without_a_registry_come_from_the_default_one() {
    let registry = Registry::start(true);
    registry.push(
        "app:1",
        &json!({"architecture": "amd64", "os": "linux", "config": {"Cmd": ["/ours"]}}),
    );
    let server = quiet(&[
        ("DSTACK_SERVER_DEFAULT_DOCKER_REGISTRY", &registry.host),
        ("DSTACK_SERVER_DEFAULT_DOCKER_REGISTRY_USERNAME", "pusher"),
        ("DSTACK_SERVER_DEFAULT_DOCKER_REGISTRY_PASSWORD", "right"),
    ]);
    let answer = plan(&server, &json!({"type": "task", "image": "tests/app:1"}));
    assert_eq!(job(&answer)["commands"], json!(["/ours"]));
    assert_eq!(job(&answer)["image_name"], registry.image("app:1"));
}
