//! Network interfaces of a machine, fast ones (EFA) where its type has them.
//!
//! Source: "Maximize network bandwidth on Amazon EC2 instances with multiple network cards" of the EC2 user guide.

use std::time::Duration;

use dstack_backend_sdk::host::cache;
use dstack_backend_sdk::prelude::*;
use serde::Deserialize;

use crate::backend::Aws;
use crate::params::Params;
use crate::xml::Set;

/// What a type has does not change.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// One interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) card: u32,
    pub(crate) device: u32,
    /// The provider's word; `None` is an ordinary one.
    pub(crate) kind: Option<&'static str>,
}

/// All interfaces of a machine whose type takes so many fast ones, the primary one first.
pub(crate) fn of(instance_type: &str, fast: u32) -> Vec<Interface> {
    // The first card of this type has no fast interface.
    let is_first_fast = fast > 0 && instance_type != "p6-b300.48xlarge";
    let mut all = vec![Interface {
        card: 0,
        device: 0,
        kind: is_first_fast.then_some("efa"),
    }];
    if fast > 1 {
        let cards = if is_first_fast { fast } else { fast + 1 };
        all.extend((1..cards).map(|card| Interface {
            card,
            device: 1,
            // Its network cards come in fours, of which one has an address.
            kind: Some(if instance_type == "p5.48xlarge" && card % 4 == 0 {
                "efa"
            } else {
                "efa-only"
            }),
        }));
    }
    all
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Types {
    #[serde(default)]
    instance_type_set: Set<Type>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Type {
    #[serde(default)]
    network_info: Network,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Network {
    efa_info: Option<Efa>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Efa {
    maximum_efa_interfaces: Option<u32>,
}

impl Aws {
    /// How many fast interfaces a type takes.
    pub(crate) fn fast_interfaces(&self, region: &str, instance_type: &str) -> Result<u32> {
        cache::get_or_compute(&format!("efa/{region}/{instance_type}"), REMEMBERED, || {
            let params = Params::new()
                .filter("network-info.efa-supported", ["true"])
                .filter("instance-type", [instance_type]);
            let found: Types = self
                .apis
                .ec2(region)?
                .read("DescribeInstanceTypes", &params)?;
            let mut types = found.instance_type_set.items.into_iter();
            let most = types.find_map(|it| it.network_info.efa_info?.maximum_efa_interfaces);
            Ok(most.unwrap_or(0))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::of;

    fn shown(instance_type: &str, fast: u32) -> String {
        let all = of(instance_type, fast).into_iter();
        let words = all.map(|it| format!("{}:{}:{}", it.card, it.device, it.kind.unwrap_or("-")));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn fast_interfaces_follow_the_type() {
        assert_eq!(shown("t3.micro", 0), "0:0:-");
        assert_eq!(shown("g6.8xlarge", 1), "0:0:efa");
        assert_eq!(
            shown("p4d.24xlarge", 4),
            "0:0:efa 1:1:efa-only 2:1:efa-only 3:1:efa-only"
        );
        assert_eq!(
            shown("p6-b300.48xlarge", 2),
            "0:0:- 1:1:efa-only 2:1:efa-only"
        );
        let p5 = shown("p5.48xlarge", 32);
        assert_eq!(p5.split(' ').count(), 32);
        assert!(p5.contains(" 3:1:efa-only 4:1:efa 5:1:efa-only"), "{p5}");
    }
}
