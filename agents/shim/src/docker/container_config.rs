//! The container of a task, as the engine is asked for it. Pure: the same request gives the same body.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, DeviceMapping, DeviceRequest, HostConfig, Mount,
    MountType, PortBinding, ResourcesUlimits,
};
use dstack_agent_protocol::shim::{NetworkMode, TaskConfig};

use crate::args::TaskDefaults;
use crate::gpu::Vendor;
use crate::volumes::volume_dir;

/// Label of all containers of tasks.
pub(crate) const IS_TASK_LABEL: &str = "ai.dstack.shim.is-task";
/// Label with the task's id.
pub(crate) const TASK_ID_LABEL: &str = "ai.dstack.shim.task-id";

/// Our addition: home of the shim that made the container. Several shims may share an engine, and each must leave the
/// others' containers alone; one without this label was made by another implementation and belongs to whoever finds it.
pub(crate) const HOME_LABEL: &str = "dstack.shim.home";

const INFINIBAND: &str = "/dev/infiniband";
const HUGEPAGES: &str = "/dev/hugepages-1G";
const KFD: &str = "/dev/kfd";
const RENDER_NODES: &str = "/dev/dri/renderD";
const TENSTORRENT_DEVICES: &str = "/dev/tenstorrent/";
const HABANA_DEVICES: &str = "HABANA_VISIBLE_DEVICES";
const ALL_ACCESS: &str = "rwm";

/// Makes sure of an SSH server in a sub-shell, so that nothing it changes reaches the runner. The two variables are
/// cleared since images set them to libraries with which package managers do not run.
const ENSURE_SSHD: &str = "( unset LD_LIBRARY_PATH LD_PRELOAD; \
command -v sshd >/dev/null 2>&1 && exit 0; \
if command -v apt-get >/dev/null 2>&1; then apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y openssh-server; \
elif command -v yum >/dev/null 2>&1; then yum install -y openssh-server; \
elif command -v apk >/dev/null 2>&1; then apk add -U openssh-server; \
else NAME=this-system; [ ! -r /etc/os-release ] || . /etc/os-release; echo \"$NAME not supported\"; exit 11; fi )";

/// Everything the container depends on.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) config: &'a TaskConfig,
    pub(crate) defaults: &'a TaskDefaults,
    /// Home of this shim.
    pub(crate) home: &'a Path,
    /// Host directory that is `/tmp/runner` in the container.
    pub(crate) runner_dir: PathBuf,
    pub(crate) vendor: Option<Vendor>,
    pub(crate) gpus: &'a [String],
    /// Off in the second attempt on hosts whose driver lacks the display device.
    pub(crate) has_display: bool,
    /// Host paths that decide about devices, so that tests need no hardware.
    pub(crate) root: &'a Path,
}

impl Request<'_> {
    /// The body of the create call.
    pub(crate) fn body(&self) -> ContainerCreateBody {
        let config = self.config;
        let mut env: Vec<String> = self
            .defaults
            .env
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let mut host = self.host_config();
        self.add_gpus(&mut host, &mut env);
        if self.has_host_path(INFINIBAND) {
            host.devices
                .get_or_insert_default()
                .push(device(INFINIBAND, INFINIBAND));
            host.ulimits = Some(vec![ResourcesUlimits {
                name: Some("memlock".to_owned()),
                soft: Some(-1),
                hard: Some(-1),
            }]);
        }
        let user = if config.container_user.is_empty() {
            "root"
        } else {
            &config.container_user
        };
        let runner = self
            .defaults
            .runner_command(config.network_mode, &config.container_ssh_keys);
        ContainerCreateBody {
            image: Some(config.image_name.clone()),
            entrypoint: Some(vec!["/bin/sh".to_owned(), "-c".to_owned()]),
            cmd: Some(vec![format!("{ENSURE_SSHD} && {runner}")]),
            user: Some(user.to_owned()),
            env: Some(env),
            exposed_ports: Some(self.ports().to_vec()),
            labels: Some(HashMap::from([
                (IS_TASK_LABEL.to_owned(), "true".to_owned()),
                (TASK_ID_LABEL.to_owned(), config.id.clone()),
                (
                    HOME_LABEL.to_owned(),
                    self.home.to_string_lossy().into_owned(),
                ),
            ])),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        }
    }

    fn ports(&self) -> [String; 2] {
        [
            self.defaults.runner_http_port,
            self.defaults.runner_ssh_port,
        ]
        .map(|port| format!("{port}/tcp"))
    }

    fn host_config(&self) -> HostConfig {
        let config = self.config;
        let any_loopback_port = || {
            Some(vec![PortBinding {
                host_ip: Some("127.0.0.1".to_owned()),
                host_port: Some(String::new()),
            }])
        };
        let network = match config.network_mode {
            NetworkMode::Host => "host",
            NetworkMode::Bridge => "bridge",
        };
        HostConfig {
            privileged: Some(config.privileged || self.defaults.is_privileged),
            network_mode: Some(network.to_owned()),
            port_bindings: Some(
                self.ports()
                    .into_iter()
                    .map(|port| (port, any_loopback_port()))
                    .collect(),
            ),
            mounts: Some(self.mounts()),
            shm_size: Some(config.shm_size),
            nano_cpus: Some(nano_cpus(config.cpu)),
            memory: Some(config.memory),
            // Docker's own mount of a size forbids executing from it, which some libraries do.
            tmpfs: (config.shm_size > 0).then(|| {
                HashMap::from([(
                    "/dev/shm".to_owned(),
                    format!("exec,size={}", config.shm_size),
                )])
            }),
            ..HostConfig::default()
        }
    }

    fn mounts(&self) -> Vec<Mount> {
        let config = self.config;
        let mut mounts = vec![
            bind(&self.runner_dir.to_string_lossy(), "/tmp/runner"),
            bind(
                &self.defaults.runner_binary.to_string_lossy(),
                "/usr/local/bin/dstack-runner",
            ),
        ];
        mounts.extend(
            config
                .volume_mounts
                .iter()
                .map(|mount| bind(&volume_dir(&mount.name).to_string_lossy(), &mount.path)),
        );
        mounts.extend(
            config
                .instance_mounts
                .iter()
                .map(|mount| bind(&mount.instance_path, &mount.path)),
        );
        mounts
    }

    fn add_gpus(&self, host: &mut HostConfig, env: &mut Vec<String>) {
        if !self.config.gpu_devices.is_empty() {
            let devices = self.config.gpu_devices.iter();
            host.devices = Some(
                devices
                    .map(|d| device(&d.path_on_host, &d.path_in_container))
                    .collect(),
            );
            return;
        }
        if self.gpus.is_empty() {
            return;
        }
        match self.vendor {
            None => {}
            Some(Vendor::Nvidia) => {
                let capabilities = [
                    "gpu", "utility", "compute", "graphics", "video", "display", "compat32",
                ]
                .into_iter()
                .filter(|name| self.has_display || *name != "display")
                .map(str::to_owned)
                .collect();
                host.device_requests = Some(vec![DeviceRequest {
                    device_ids: Some(self.gpus.to_vec()),
                    capabilities: Some(vec![capabilities]),
                    ..DeviceRequest::default()
                }]);
            }
            Some(Vendor::Amd) => {
                let nodes = self.gpus.iter().map(String::as_str);
                host.devices = Some(
                    [KFD]
                        .into_iter()
                        .chain(nodes)
                        .map(|path| device(path, path))
                        .collect(),
                );
                host.ipc_mode = Some("host".to_owned());
                host.cap_add = Some(vec!["SYS_PTRACE".to_owned()]);
                host.security_opt = Some(vec!["seccomp=unconfined".to_owned()]);
            }
            Some(Vendor::Intel) => {
                host.runtime = Some("habana".to_owned());
                host.ipc_mode = Some("host".to_owned());
                host.cap_add = Some(vec!["SYS_NICE".to_owned()]);
                env.push(format!("{HABANA_DEVICES}={}", self.gpus.join(",")));
            }
            Some(Vendor::Tenstorrent) => {
                let paths = self
                    .gpus
                    .iter()
                    .map(|id| format!("{TENSTORRENT_DEVICES}{id}"));
                host.devices = Some(paths.map(|path| device(&path, &path)).collect());
                if self.has_host_path(HUGEPAGES) {
                    host.mounts
                        .get_or_insert_default()
                        .push(bind(HUGEPAGES, HUGEPAGES));
                }
            }
        }
    }

    fn has_host_path(&self, path: &str) -> bool {
        self.root.join(path.trim_start_matches('/')).exists()
    }
}

/// CPUs in the engine's unit. Limits come from the server and lie far below what the conversion can hold.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a float cast saturates; limits are small"
)]
fn nano_cpus(cpus: f64) -> i64 {
    (cpus * 1e9) as i64
}

fn bind(source: &str, target: &str) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.to_owned()),
        target: Some(target.to_owned()),
        ..Mount::default()
    }
}

fn device(on_host: &str, in_container: &str) -> DeviceMapping {
    DeviceMapping {
        path_on_host: Some(on_host.to_owned()),
        path_in_container: Some(in_container.to_owned()),
        cgroup_permissions: Some(ALL_ACCESS.to_owned()),
    }
}

/// The GPUs that a container was given; the reverse of what [`Request::body`] asks for.
pub(crate) fn gpu_ids(container: &ContainerInspectResponse, vendor: Vendor) -> Vec<String> {
    let Some(host) = &container.host_config else {
        return Vec::new();
    };
    let paths = || {
        host.devices
            .iter()
            .flatten()
            .filter_map(|d| d.path_on_host.clone())
    };
    match vendor {
        Vendor::Nvidia => match host.device_requests.as_deref() {
            Some([only]) => only.device_ids.clone().unwrap_or_default(),
            _ => Vec::new(),
        },
        Vendor::Amd => paths()
            .filter(|path| path.starts_with(RENDER_NODES))
            .collect(),
        Vendor::Tenstorrent => paths()
            .filter_map(|path| path.strip_prefix(TENSTORRENT_DEVICES).map(str::to_owned))
            .collect(),
        Vendor::Intel => {
            let env = container
                .config
                .as_ref()
                .and_then(|config| config.env.as_ref());
            env.into_iter()
                .flatten()
                .filter_map(|pair| pair.strip_prefix(HABANA_DEVICES)?.strip_prefix('='))
                .flat_map(|ids| ids.split(','))
                .map(str::to_owned)
                .collect()
        }
    }
}

#[cfg(test)]
mod tests;
