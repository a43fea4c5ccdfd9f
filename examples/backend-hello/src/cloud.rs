//! The cloud: what a real backend would reach over `dstack_backend_sdk::http`, where the host has that service.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dstack_backend_sdk::{BackendError, names};

pub(crate) const REGIONS: &[&str] = &["moon", "mars"];
/// Machines an account may have.
const QUOTA: usize = 100;

/// What can be rented.
pub(crate) struct Plan {
    pub(crate) name: &'static str,
    pub(crate) cpus: u32,
    pub(crate) memory_gib: u64,
    /// Model and GiB.
    pub(crate) gpu: Option<(&'static str, u64)>,
    pub(crate) price: f64,
}

/// Cheapest first: offers keep this order.
pub(crate) const PLANS: &[Plan] = &[
    Plan {
        name: "small",
        cpus: 2,
        memory_gib: 8,
        gpu: None,
        price: 0.05,
    },
    Plan {
        name: "large",
        cpus: 16,
        memory_gib: 64,
        gpu: None,
        price: 0.4,
    },
    Plan {
        name: "gpu",
        cpus: 8,
        memory_gib: 32,
        gpu: Some(("L4", 24)),
        price: 0.8,
    },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Booting,
    Running,
    Deleting,
}

#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) region: String,
    pub(crate) address: String,
    pub(crate) state: State,
}

#[derive(Debug, Default)]
pub(crate) struct Cloud {
    machines: Mutex<Vec<Machine>>,
}

impl Cloud {
    pub(crate) fn create(&self, name: &str, region: &str) -> Result<Machine, BackendError> {
        let mut machines = self.machines();
        if machines.len() >= QUOTA {
            return Err(BackendError::no_capacity(format!(
                "{region} has no free machine"
            )));
        }
        let machine = Machine {
            id: format!("i-{name}"),
            name: name.to_owned(),
            region: region.to_owned(),
            // An address of the range for documentation: nothing answers there.
            address: format!("203.0.113.{}", machines.len() + 1),
            state: State::Booting,
        };
        machines.push(machine.clone());
        Ok(machine)
    }

    /// A look finds the machine one step further than the last: this cloud has no clock.
    pub(crate) fn look(&self, id: &str) -> Option<Machine> {
        let mut machines = self.machines();
        let machine = machines
            .iter_mut()
            .find(|machine| machine.id == id && machine.state != State::Deleting)?;
        let seen = machine.clone();
        machine.state = State::Running;
        Some(seen)
    }

    pub(crate) fn find(&self, provider_ref: &str) -> Option<Machine> {
        self.list()
            .into_iter()
            .find(|machine| names::provider_ref_of_name(&machine.name) == Some(provider_ref))
    }

    pub(crate) fn list(&self) -> Vec<Machine> {
        self.machines().clone()
    }

    /// Begins to delete, then deletes. The state before, or `None` if there is no such machine any more.
    pub(crate) fn delete(&self, id: &str) -> Option<State> {
        let mut machines = self.machines();
        let position = machines.iter().position(|machine| machine.id == id)?;
        let machine = machines.get_mut(position)?;
        if machine.state == State::Deleting {
            machines.remove(position);
            return None;
        }
        Some(std::mem::replace(&mut machine.state, State::Deleting))
    }

    fn machines(&self) -> MutexGuard<'_, Vec<Machine>> {
        // Every change is one assignment, so the list is sound even after a panic.
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
