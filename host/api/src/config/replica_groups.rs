//! Groups of replicas of a service.

use dstack_backend_types::reading::{Failed, FromObject, FromValue, Obj, Reader};
use dstack_backend_types::resources::{Range, ResourcesSpec};
use dstack_backend_types::{deserialize_by_value, words};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::groups;
use super::object::config;
use super::run::python;
use super::scaling::{ScalingSpec, check_scaling};
use super::schema::{rules, scalars};
use super::service::{ServiceConfiguration, replicas_range};
use super::words::{PythonVersion, SpotPolicy};

config! {
    /// Some replicas of a service that are alike.
    pub struct ReplicaGroup {
        /// Its name; unset in a file means its position.
        pub name: Option<String> = optional(groups::name, scalars::group_name),
        /// How many; older files say `count`.
        #[serde(flatten)]
        pub replicas: GroupReplicas = flat,
        /// How their number follows the load; needs a range.
        pub scaling: Option<ScalingSpec> = optional,
        /// What is asked of each machine.
        pub resources: ResourcesSpec = default(ResourcesSpec::default()),
        /// Price model; unset means the service's.
        pub spot_policy: Option<SpotPolicy> = optional,
        /// Reserved capacity; unset means the service's.
        pub reservation: Option<String> = optional,
        /// What to run.
        pub commands: Vec<String> = default(Vec::new()),
        /// Container image; unset means the service's.
        pub image: Option<String> = optional,
        /// Python to set up; unset means the service's.
        pub python: Option<PythonVersion> = optional(python, scalars::python),
        /// Whether the default image has the CUDA compiler; unset means as the service.
        pub nvcc: Option<bool> = optional,
        /// Whether a Docker daemon is started; unset means as the service.
        pub docker: Option<bool> = optional,
        /// Whether the container may do everything; unset means as the service.
        pub privileged: Option<bool> = optional,
        /// Makes this group the router before the others.
        pub router: Option<RouterConfig> = optional,
    }
    check(ReplicaGroup::check) rules(rules::replica_group)
}

/// Least and most replicas of a group, both there.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupReplicas {
    /// The range.
    pub replicas: Range<u32>,
}

impl FromObject for GroupReplicas {
    fn from_object(obj: &mut Obj<'_>, cx: &mut Reader) -> Result<Self, Failed> {
        let older = obj.raw("count").is_some();
        let key = if older && !obj.has("replicas") {
            "count"
        } else {
            "replicas"
        };
        let replicas = obj.required_with(key, cx, replicas_range);
        // Both are known keys, whichever was used.
        obj.raw("replicas");
        Ok(Self {
            replicas: replicas?,
        })
    }
}

words! {
    /// What distributes requests among the other groups.
    pub enum Router {
        /// The SGLang router.
        Smg = "smg",
        /// NVIDIA Dynamo.
        Dynamo = "dynamo",
    }
}

/// The router of a group. In JSON `smg` is written `sglang`, the name older peers know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouterConfig {
    /// Which.
    pub router: Router,
}

impl Serialize for RouterConfig {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = s.serialize_map(Some(1))?;
        let word = match self.router {
            Router::Smg => "sglang",
            Router::Dynamo => "dynamo",
        };
        map.serialize_entry("type", word)?;
        map.end()
    }
}

impl FromValue for RouterConfig {
    fn from_value(value: &Value, cx: &mut Reader) -> Result<Self, Failed> {
        let mut obj = cx.object(value)?;
        let router = obj.defaulted_with(
            "type",
            cx,
            || Router::Smg,
            |value, cx| {
                if value.as_str() == Some("sglang") {
                    return Ok(Router::Smg);
                }
                Router::from_value(value, cx)
            },
        );
        obj.finish(cx)?;
        Ok(Self { router: router? })
    }
}

impl ReplicaGroup {
    /// Least replicas.
    pub fn min(&self) -> u32 {
        self.replicas.replicas.min.unwrap_or(0)
    }

    /// Most replicas.
    pub fn max(&self) -> u32 {
        self.replicas.replicas.max.unwrap_or_else(|| self.min())
    }

    fn check(&self, cx: &mut Reader) -> Result<(), Failed> {
        let mut result = Ok(());
        if self.image.is_some() && self.python.is_some() {
            result = Err(cx.fail_at("python", "`python` and `image` exclude each other"));
        }
        if self.docker == Some(true) {
            let others = [
                ("image", self.image.is_some()),
                ("python", self.python.is_some()),
                ("nvcc", self.nvcc == Some(true)),
            ];
            for (key, _) in others.into_iter().filter(|(_, set)| *set) {
                let message = format!("`docker: true` and `{key}` exclude each other");
                result = Err(cx.fail_at("docker", message));
            }
            if self.privileged == Some(false) {
                result = Err(cx.fail_at("privileged", "`docker: true` needs privileged mode"));
            }
        }
        result
    }
}

/// The list of groups, with names.
pub(super) fn replica_groups(value: &Value, cx: &mut Reader) -> Result<Vec<ReplicaGroup>, Failed> {
    let mut list: Vec<ReplicaGroup> = Vec::from_value(value, cx)?;
    groups::number(&mut list, |group| &mut group.name, cx)?;
    Ok(list)
}

/// The rules between a service and its groups.
pub(super) fn check_groups(
    service: &ServiceConfiguration,
    groups: &[ReplicaGroup],
    cx: &mut Reader,
) -> Result<(), Failed> {
    for (key, set) in [
        ("scaling", service.scaling.is_some()),
        ("commands", !service.commands.is_empty()),
    ] {
        if set {
            let message = format!("`{key}` is not allowed beside `groups`; set it in each group");
            return Err(cx.fail_at(key, message));
        }
    }
    for (index, group) in groups.iter().enumerate() {
        let name = group.name.as_deref().unwrap_or_default();
        if let Some(message) = clash(service, group) {
            return Err(groups::fail(index, message, cx));
        }
        let runs =
            !group.commands.is_empty() || group.image.is_some() || service.base.image.is_some();
        if !runs {
            let message = format!("the group \"{name}\" needs `commands` or `image`");
            return Err(groups::fail(index, message, cx));
        }
        cx.at_key("groups", |cx| {
            cx.at_index(index, |cx| {
                check_scaling(Some(group.replicas.replicas), group.scaling.as_ref(), cx)
            })
        })?;
        if group.router.is_some() && group.replicas.replicas != Range::exactly(1) {
            let message = format!("the router group \"{name}\" has exactly one replica");
            return Err(groups::fail(index, message, cx));
        }
    }
    let mut routers = groups
        .iter()
        .enumerate()
        .filter(|(_, group)| group.router.is_some());
    match routers.nth(1) {
        Some((index, _)) => Err(groups::fail(
            index,
            "one router group at most is possible",
            cx,
        )),
        None => Ok(()),
    }
}

/// What is set on both levels or does not go together across them.
fn clash(service: &ServiceConfiguration, group: &ReplicaGroup) -> Option<String> {
    let base = &service.base;
    let both = [
        ("image", base.image.is_some(), group.image.is_some()),
        (
            "docker",
            base.docker == Some(true),
            group.docker == Some(true),
        ),
        (
            "privileged",
            base.privileged,
            group.privileged == Some(true),
        ),
        ("python", base.python.is_some(), group.python.is_some()),
        ("nvcc", base.nvcc == Some(true), group.nvcc == Some(true)),
        (
            "spot_policy",
            service.profile.spot_policy.is_some(),
            group.spot_policy.is_some(),
        ),
        (
            "reservation",
            service.profile.reservation.is_some(),
            group.reservation.is_some(),
        ),
    ];
    if let Some((key, ..)) = both.iter().find(|(_, outer, inner)| *outer && *inner) {
        return Some(format!(
            "`{key}` is set both for the service and in this group; remove one of them"
        ));
    }
    let excludes: [(&str, &[&str]); 4] = [
        ("image", &["docker", "python", "nvcc"]),
        ("docker", &["image", "python", "nvcc"]),
        ("python", &["image", "docker"]),
        ("nvcc", &["image", "docker"]),
    ];
    let is_set = |key: &str, outer: bool| {
        both.iter()
            .any(|(k, o, i)| *k == key && if outer { *o } else { *i })
    };
    excludes.into_iter().find_map(|(outer, inner)| {
        let inner = inner
            .iter()
            .find(|inner| is_set(outer, true) && is_set(inner, false))?;
        Some(format!(
            "`{outer}` of the service and `{inner}` of this group exclude each other"
        ))
    })
}

deserialize_by_value!(RouterConfig);
