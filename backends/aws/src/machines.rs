//! Machines as EC2 shows them.

use dstack_backend_sdk::prelude::*;
use jiff::Timestamp;
use serde::Deserialize;

use crate::client::Api;
use crate::errors;
use crate::params::Params;
use crate::xml::Set;

/// Codes for a machine that does not exist. An id of another form never was one.
pub(crate) const UNKNOWN: &[&str] = &["InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reservations {
    #[serde(default)]
    reservation_set: Set<Reservation>,
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reservation {
    #[serde(default)]
    instances_set: Set<Machine>,
}

/// The answer of `RunInstances`, which is a reservation itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Started {
    #[serde(default)]
    pub(crate) instances_set: Set<Machine>,
}

/// A machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Machine {
    pub(crate) instance_id: String,
    instance_state: State,
    ip_address: Option<String>,
    private_ip_address: Option<String>,
    placement: Option<Placement>,
    launch_time: Option<String>,
    pub(crate) spot_instance_request_id: Option<String>,
    state_reason: Option<Reason>,
    #[serde(default)]
    tag_set: Set<Tag>,
    #[serde(default)]
    block_device_mapping: Set<Device>,
    #[serde(default)]
    pub(crate) network_interface_set: Set<Card>,
}

#[derive(Debug, Clone, Deserialize)]
struct State {
    name: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Placement {
    availability_zone: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
struct Reason {
    message: Option<String>,
}

/// A tag of anything.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Tag {
    key: String,
    value: Option<String>,
}

/// A tag's value, if there is one.
fn tag<'t>(tags: &'t Set<Tag>, key: &str) -> Option<&'t str> {
    let mut tags = tags.items.iter();
    let tag = tags.find(|tag| tag.key == key)?;
    tag.value.as_deref().filter(|value| !value.is_empty())
}

/// The `provider_ref` among tags.
pub(crate) fn reference(tags: &Set<Tag>) -> Option<&str> {
    tag(tags, names::PROVIDER_REF_TAG)
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    device_name: String,
}

/// A network interface of a machine.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Card {
    pub(crate) network_interface_id: String,
    attachment: Option<CardAttachment>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CardAttachment {
    device_index: Option<u32>,
    network_card_index: Option<u32>,
}

impl Card {
    /// Whether it is the one that addresses belong to.
    pub(crate) fn is_primary(&self) -> bool {
        self.attachment.as_ref().is_some_and(|at| {
            at.device_index.unwrap_or(0) == 0 && at.network_card_index.unwrap_or(0) == 0
        })
    }
}

impl Machine {
    /// The provider's word: `pending`, `running`, `shutting-down`, `terminated`, `stopping`, `stopped`.
    pub(crate) fn state(&self) -> &str {
        &self.instance_state.name
    }

    /// Whether it may become ready, or is.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.state(), "pending" | "running")
    }

    pub(crate) fn public_ip(&self) -> Option<&str> {
        self.ip_address.as_deref().filter(|ip| !ip.is_empty())
    }

    pub(crate) fn private_ip(&self) -> Option<&str> {
        self.private_ip_address
            .as_deref()
            .filter(|ip| !ip.is_empty())
    }

    pub(crate) fn zone(&self) -> Option<&str> {
        let placement = self.placement.as_ref()?;
        placement.availability_zone.as_deref()
    }

    pub(crate) fn reference(&self) -> Option<&str> {
        reference(&self.tag_set)
    }

    pub(crate) fn tag(&self, key: &str) -> Option<&str> {
        tag(&self.tag_set, key)
    }

    /// Why it ended, in the provider's words.
    pub(crate) fn reason(&self) -> &str {
        let reason = self.state_reason.as_ref();
        reason
            .and_then(|reason| reason.message.as_deref())
            .unwrap_or("no reason is given")
    }

    /// Names of the disks that hang on it.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &str> {
        let devices = self.block_device_mapping.items.iter();
        devices.map(|device| device.device_name.as_str())
    }

    /// When it was started, microseconds since 1970.
    pub(crate) fn started_at_us(&self) -> Option<i64> {
        let time: Timestamp = self.launch_time.as_deref()?.parse().ok()?;
        Some(time.as_microsecond())
    }
}

/// Machines that fit.
pub(crate) fn list(ec2: &Api, params: &Params) -> Result<Vec<Machine>> {
    ec2.read_all("DescribeInstances", params, |page: Reservations| {
        let machines = page.reservation_set.items.into_iter();
        let machines = machines.flat_map(|it| it.instances_set.items).collect();
        (machines, page.next_token)
    })
}

/// One machine; `None` if the provider does not know it.
pub(crate) fn get(ec2: &Api, id: &str) -> Result<Option<Machine>> {
    match list(ec2, &Params::new().list("InstanceId", [id])) {
        Ok(machines) => Ok(machines.into_iter().next()),
        Err(error) if errors::is(&error, UNKNOWN) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Machines of one attempt that are not going away.
pub(crate) fn of_attempt(ec2: &Api, reference: &str) -> Result<Vec<Machine>> {
    let tag = format!("tag:{}", names::PROVIDER_REF_TAG);
    let params = Params::new().filter(&tag, [reference]).filter(
        "instance-state-name",
        ["pending", "running", "stopping", "stopped"],
    );
    let mut machines = list(ec2, &params)?;
    // Filters may hold patterns; the reference is to be equal.
    machines.retain(|machine| machine.reference() == Some(reference));
    Ok(machines)
}

/// Begins to delete machines; the state of each, or nothing for those that do not exist.
pub(crate) fn terminate(ec2: &Api, id: &str) -> Result<Option<String>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        #[serde(default)]
        instances_set: Set<Change>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Change {
        current_state: State,
    }
    let params = Params::new().list("InstanceId", [id]);
    match ec2.change::<Answer>("TerminateInstances", &params) {
        Ok(answer) => {
            let change = answer.instances_set.items.into_iter().next();
            let change = change.ok_or_else(|| {
                BackendError::internal(format!("TerminateInstances says nothing of {id}"))
            })?;
            Ok(Some(change.current_state.name))
        }
        Err(error) if errors::is(&error, UNKNOWN) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends a machine, and says whether it is gone. Called again until it is.
pub(crate) fn end(ec2: &Api, id: &str) -> Result<bool> {
    match get(ec2, id)?.as_ref().map(Machine::state) {
        Some("terminated") => Ok(true),
        Some("shutting-down") => Ok(false),
        // One that was made a moment ago may not be shown yet: only who is told to end it can say that there is none.
        None | Some(_) => {
            let state = terminate(ec2, id)?;
            Ok(state.is_none_or(|state| state == "terminated"))
        }
    }
}
