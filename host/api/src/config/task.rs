//! Tasks.

use dstack_backend_types::reading::{Failed, FromValue, Reader};
use dstack_backend_types::resources::ResourcesSpec;
use serde_json::Value;

use super::groups;
use super::object::config;
use super::paths::PortMapping;
use super::profile::ProfileParams;
use super::run::RunBase;
use super::schema::{choices, parts, rules, scalars};

config! {
    /// A command that ends, on one or more nodes.
    pub struct TaskConfiguration {
        /// How many nodes; unset means 1. Excludes `groups`.
        pub nodes: Option<u32> = optional(at_least_one, parts::integer(1, i64::from(u32::MAX))),
        /// Nodes of different sorts.
        pub groups: Option<Vec<NodeGroup>> = optional(node_groups, choices::node_groups),
        /// Ports to forward to the person's machine.
        pub ports: Vec<PortMapping> = default(Vec::new()),
        /// What to run; may be empty if the image has a command.
        pub commands: Vec<String> = default(Vec::new()),
        /// What all runs have.
        #[serde(flatten)]
        pub base: RunBase = flat,
        /// Where and how to provision.
        #[serde(flatten)]
        pub profile: ProfileParams = flat,
    }
    known("type" = "task") check(TaskConfiguration::check) rules(rules::task)
}

pub(crate) fn at_least_one(value: &Value, cx: &mut Reader) -> Result<u32, Failed> {
    cx.integer_in(value, 1, i64::from(u32::MAX))
}

impl TaskConfiguration {
    fn check(&self, cx: &mut Reader) -> Result<(), Failed> {
        self.base.check(cx)?;
        let Some(groups) = &self.groups else {
            if self.commands.is_empty() && self.base.image.is_none() {
                return Err(cx.fail("either `commands` or `image` is required"));
            }
            return Ok(());
        };
        let own = [
            ("nodes", self.nodes.is_some()),
            ("commands", !self.commands.is_empty()),
            ("ports", !self.ports.is_empty()),
            ("entrypoint", self.base.entrypoint.is_some()),
        ];
        if let Some((key, _)) = own.into_iter().find(|(_, set)| *set) {
            let message = format!("`{key}` is not allowed beside `groups`; set it in each group");
            return Err(cx.fail_at(key, message));
        }
        let bare = groups.iter().position(|group| group.commands.is_empty());
        match bare.filter(|_| self.base.image.is_none()) {
            Some(index) => Err(groups::fail(
                index,
                "the group needs `commands`, or the task an `image`",
                cx,
            )),
            None => Ok(()),
        }
    }
}

config! {
    /// Some nodes of a task that are alike.
    pub struct NodeGroup {
        /// Its name; unset in a file means its position.
        pub name: Option<String> = optional(groups::name, scalars::group_name),
        /// How many nodes, at least 1.
        pub nodes: u32 = default(1, at_least_one, parts::integer(1, i64::from(u32::MAX))),
        /// What is asked of each machine.
        pub resources: ResourcesSpec = default(ResourcesSpec::default()),
        /// What to run.
        pub commands: Vec<String> = default(Vec::new()),
        /// Ports to forward to the person's machine.
        pub ports: Vec<PortMapping> = default(Vec::new()),
    }
}

fn node_groups(value: &Value, cx: &mut Reader) -> Result<Vec<NodeGroup>, Failed> {
    let mut list: Vec<NodeGroup> = Vec::from_value(value, cx)?;
    groups::number(&mut list, |group| &mut group.name, cx)?;
    Ok(list)
}
