//! Reserved capacity.

use dstack_backend_sdk::prelude::*;
use serde::Deserialize;

use crate::backend::Aws;
use crate::errors;
use crate::params::Params;
use crate::xml::Set;

/// A reservation that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reservation {
    pub(crate) id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) tenancy: Option<String>,
    /// How many machines it still takes.
    pub(crate) available: u32,
    /// Bought for a time (capacity block): ordered in a way of its own.
    pub(crate) is_capacity_block: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    capacity_reservation_set: Set<Item>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    capacity_reservation_id: String,
    instance_type: String,
    availability_zone: String,
    tenancy: Option<String>,
    #[serde(default)]
    available_instance_count: u32,
    reservation_type: Option<String>,
    state: Option<String>,
}

impl Aws {
    /// A reservation of a region; `None` if there is none of this id that is active.
    pub(crate) fn reservation(&self, region: &str, id: &str) -> Result<Option<Reservation>> {
        const MISSING: &[&str] = &[
            "InvalidCapacityReservationId.NotFound",
            "InvalidCapacityReservationId.Malformed",
        ];
        let params = Params::new()
            .list("CapacityReservationId", [id])
            .filter("state", ["active"]);
        let ec2 = self.apis.ec2(region)?;
        let found = match ec2.read::<Answer>("DescribeCapacityReservations", &params) {
            Ok(answer) => answer.capacity_reservation_set.items,
            Err(error) if errors::is(&error, MISSING) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut found = found.into_iter().filter(|it| {
            it.capacity_reservation_id == id
                && it.state.as_deref().is_none_or(|state| state == "active")
        });
        Ok(found.next().map(|it| Reservation {
            id: it.capacity_reservation_id,
            instance_type: it.instance_type,
            zone: it.availability_zone,
            tenancy: it.tenancy,
            available: it.available_instance_count,
            is_capacity_block: it.reservation_type.as_deref() == Some("capacity-block"),
        }))
    }

    /// The reservation that a machine is to use.
    ///
    /// # Errors
    /// `no_capacity` if it cannot take this machine.
    pub(crate) fn reservation_of(
        &self,
        request: &CreateInstanceRequest,
    ) -> Result<Option<Reservation>> {
        let Some(id) = &request.config.reservation else {
            return Ok(None);
        };
        let offer = &request.offer;
        match self.reservation(&offer.region, id)? {
            Some(found) if found.fits(&offer.instance.name) => Ok(Some(found)),
            _ => Err(BackendError::no_capacity(format!(
                "reservation {id} does not take a machine of type {} in {}",
                offer.instance.name, offer.region
            ))),
        }
    }
}

impl Reservation {
    /// Whether it takes one more machine of this type.
    pub(crate) fn fits(&self, instance_type: &str) -> bool {
        self.instance_type == instance_type && self.available > 0
    }
}
