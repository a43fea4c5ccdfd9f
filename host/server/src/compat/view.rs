//! What the official client can read: it knows a fixed set of backends and breaks on any other.
//!
//! It sees `remote` in place of others, with the true name in front of the instance type's name (`acme:gpu-1x`).

use dstack_api::config::{BackendOptions, ProfileParams, RunConfiguration};
use dstack_api::fleets::{Fleet, FleetPlan, FleetSpec};
use dstack_api::instances::Instance;
use dstack_api::jobs::{JobPlan, JobSubmission};
use dstack_api::runs::{Run, RunPlan, RunSpec};
use dstack_backend_types::backend_type::KNOWN_BACKENDS;
use dstack_backend_types::{
    BackendType, InstanceOfferWithAvailability, InstanceType, JobProvisioningData,
};

use super::Client;

/// Whether the official client can read this backend's name.
pub(crate) fn is_known(backend: &BackendType) -> bool {
    // `local` is ours; the reference keeps its own local driver out of its lists.
    *backend != BackendType::LOCAL && KNOWN_BACKENDS.iter().any(|known| *backend == known.name)
}

/// Rewrites an answer for the client that asked.
pub(crate) trait Show {
    /// Changes what this client could not read.
    fn show(&mut self, client: &Client);
}

impl<T: Show> Show for Vec<T> {
    fn show(&mut self, client: &Client) {
        self.iter_mut().for_each(|item| item.show(client));
    }
}

impl<T: Show> Show for Option<T> {
    fn show(&mut self, client: &Client) {
        if let Some(item) = self {
            item.show(client);
        }
    }
}

fn hide(backend: &mut BackendType, instance: &mut InstanceType, client: &Client) {
    if !client.ours && !is_known(backend) {
        instance.name = format!("{}:{}", backend.as_str(), instance.name);
        *backend = BackendType::REMOTE;
    }
}

impl Show for InstanceOfferWithAvailability {
    fn show(&mut self, client: &Client) {
        hide(&mut self.backend, &mut self.instance, client);
    }
}

impl Show for JobProvisioningData {
    fn show(&mut self, client: &Client) {
        hide(&mut self.backend, &mut self.instance_type, client);
        if !client.ours
            && self
                .base_backend
                .as_ref()
                .is_some_and(|base| !is_known(base))
        {
            self.base_backend = None;
        }
        // The official client reads these as plain values.
        if self.hostname.is_none() {
            self.hostname = Some(String::new());
        }
        if self.ssh_port.is_none() {
            self.ssh_port = Some(22);
        }
    }
}

impl Show for Instance {
    fn show(&mut self, client: &Client) {
        let Some(backend) = &mut self.backend else {
            return;
        };
        match &mut self.instance_type {
            Some(instance_type) => hide(backend, instance_type, client),
            None if !client.ours && !is_known(backend) => *backend = BackendType::REMOTE,
            None => {}
        }
    }
}

impl Show for JobSubmission {
    fn show(&mut self, client: &Client) {
        self.job_provisioning_data.show(client);
        if let Some(runtime) = &mut self.job_runtime_data {
            runtime.offer.show(client);
        }
    }
}

/// The same in what users ask for: one unknown name makes the official client refuse the whole answer.
fn hide_names(backends: &mut Option<Vec<BackendType>>, client: &Client) {
    let Some(all) = backends else { return };
    if client.ours || all.iter().all(is_known) {
        return;
    }
    let mut shown: Vec<BackendType> = Vec::new();
    for kind in all.drain(..) {
        let kind = if is_known(&kind) {
            kind
        } else {
            BackendType::REMOTE
        };
        if !shown.contains(&kind) {
            shown.push(kind);
        }
    }
    *all = shown;
}

/// Whether a client that sends back what it saw has seen what is stored, be it ours or the official one.
pub(crate) fn is_as_shown<T: Show + Clone + PartialEq>(seen: &T, stored: &T) -> bool {
    if seen == stored {
        return true;
    }
    let mut official = stored.clone();
    official.show(&Client::default());
    *seen == official
}

fn hide_options(options: &mut Option<Vec<BackendOptions>>, client: &Client) {
    if let Some(options) = options
        && !client.ours
    {
        options.retain(|one| is_known(&BackendType::new(one.backend().to_owned())));
    }
}

impl Show for ProfileParams {
    fn show(&mut self, client: &Client) {
        hide_names(&mut self.backends, client);
        hide_options(&mut self.backend_options, client);
    }
}

impl Show for FleetSpec {
    fn show(&mut self, client: &Client) {
        hide_names(&mut self.configuration.backends, client);
        hide_options(&mut self.configuration.backend_options, client);
        self.profile.params.show(client);
    }
}

impl Show for RunSpec {
    fn show(&mut self, client: &Client) {
        self.configuration.profile_mut().show(client);
        if let Some(profile) = &mut self.profile {
            profile.params.show(client);
        }
        if client.version.is_some()
            && let RunConfiguration::Task(task) = &mut self.configuration
            && task.groups.is_none()
            && task.nodes.is_none()
        {
            task.nodes = Some(1);
        }
    }
}

impl Show for Run {
    fn show(&mut self, client: &Client) {
        self.run_spec.show(client);
        for job in &mut self.jobs {
            job.job_spec.ssh_key = None;
            job.job_submissions.show(client);
        }
        self.latest_job_submission.show(client);
    }
}

impl Show for JobPlan {
    fn show(&mut self, client: &Client) {
        self.job_spec.ssh_key = None;
        self.offers.show(client);
    }
}

impl Show for RunPlan {
    fn show(&mut self, client: &Client) {
        self.run_spec.show(client);
        self.effective_run_spec.show(client);
        self.job_plans.show(client);
        self.current_resource.show(client);
    }
}

impl Show for Fleet {
    fn show(&mut self, client: &Client) {
        self.spec.show(client);
        self.instances.show(client);
    }
}

impl Show for FleetPlan {
    fn show(&mut self, client: &Client) {
        self.spec.show(client);
        self.effective_spec.show(client);
        self.current_resource.show(client);
        self.offers.show(client);
    }
}

#[cfg(test)]
mod tests {
    use dstack_backend_types::JobProvisioningData;
    use serde_json::{Value, json};

    use dstack_api::fleets::FleetSpec;

    use super::{Show, is_as_shown};
    use crate::compat::Client;

    fn shown(backend: &str, ours: bool) -> Value {
        let mut data: JobProvisioningData = serde_json::from_value(json!({
            "backend": backend,
            "instance_type": {"name": "big", "resources": {"cpus": 1, "memory_mib": 1024, "gpus": [], "spot": false}},
            "instance_id": "i", "region": "r", "price": 0.0, "username": "root", "dockerized": false,
        }))
        .unwrap();
        data.show(&Client {
            version: None,
            ours,
        });
        serde_json::to_value(data).unwrap()
    }

    #[test]
    fn what_was_seen_is_what_is_stored_for_both_clients() {
        let spec = |backends: Value| -> FleetSpec {
            let options = json!([{"type": "acme", "order": "size"}]);
            let configuration = json!({
                "type": "fleet", "name": "f", "nodes": 1, "backends": backends, "backend_options": options,
            });
            let spec = json!({"configuration": configuration, "profile": {"name": "p"}});
            serde_json::from_value(spec).unwrap()
        };
        let stored = spec(json!(["acme", "aws", "local"]));
        assert!(is_as_shown(&stored, &stored));
        let official = |backends: Value| {
            let mut spec = spec(backends);
            spec.show(&Client::default());
            assert_eq!(spec.configuration.backend_options, Some(Vec::new()));
            spec
        };
        assert_eq!(
            official(json!(["acme", "aws", "local"])),
            official(json!(["remote", "aws"]))
        );
        assert!(is_as_shown(&official(json!(["remote", "aws"])), &stored));
        assert!(!is_as_shown(&official(json!(["remote", "gcp"])), &stored));
        assert!(!is_as_shown(&spec(json!(["aws", "local"])), &stored));
        let mut seen = stored.clone();
        seen.show(&Client {
            version: None,
            ours: true,
        });
        assert_eq!(seen, stored, "our client sees the true names");
    }

    #[test]
    fn the_official_client_sees_remote_for_what_it_does_not_know() {
        for (backend, ours, word, name) in [
            ("local", false, "remote", "local:big"),
            ("acme", false, "remote", "acme:big"),
            ("local", true, "local", "big"),
            ("aws", false, "aws", "big"),
            ("remote", false, "remote", "big"),
        ] {
            let data = shown(backend, ours);
            assert_eq!(
                (&data["backend"], &data["instance_type"]["name"]),
                (&json!(word), &json!(name))
            );
            assert_eq!(
                (&data["hostname"], &data["ssh_port"]),
                (&json!(""), &json!(22)),
                "never null"
            );
        }
    }
}
