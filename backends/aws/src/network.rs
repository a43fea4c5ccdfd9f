//! Which VPC and which subnets machines are put into.

use std::time::Duration;

use dstack_backend_sdk::host::cache;
use dstack_backend_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use crate::backend::Aws;
use crate::client::Api;
use crate::params::Params;
use crate::xml::Set;

/// How long networks, images and groups are remembered.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(600);

/// Where machines of a region go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) vpc: String,
    /// In the provider's order.
    pub(crate) subnets: Vec<Subnet>,
}

/// A part of a VPC in one zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Subnet {
    pub(crate) id: String,
    pub(crate) zone: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vpcs {
    #[serde(default)]
    vpc_set: Set<Vpc>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vpc {
    vpc_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Subnets {
    #[serde(default)]
    subnet_set: Set<SubnetItem>,
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubnetItem {
    subnet_id: String,
    availability_zone: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tables {
    #[serde(default)]
    route_table_set: Set<Table>,
    next_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Table {
    #[serde(default)]
    association_set: Set<Association>,
    #[serde(default)]
    route_set: Set<Route>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Association {
    #[serde(default)]
    main: bool,
    subnet_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Route {
    destination_cidr_block: Option<String>,
    gateway_id: Option<String>,
    nat_gateway_id: Option<String>,
    transit_gateway_id: Option<String>,
    vpc_peering_connection_id: Option<String>,
}

impl Route {
    fn is_public(&self) -> bool {
        let gateway = self.gateway_id.as_deref().unwrap_or_default();
        gateway.starts_with("igw-")
    }

    /// A way out that is no way in.
    fn is_egress(&self) -> bool {
        let ways = [
            &self.nat_gateway_id,
            &self.transit_gateway_id,
            &self.vpc_peering_connection_id,
        ];
        let is_set = |id: &&Option<String>| id.as_ref().is_some_and(|id| !id.is_empty());
        self.destination_cidr_block.as_deref() == Some("0.0.0.0/0") && ways.iter().any(is_set)
    }
}

/// Subnets with public addresses have a way in and out, the others a way out.
fn fits(tables: &[Table], subnet: &str, is_public: bool) -> bool {
    let has = |table: &&Table, fits: &dyn Fn(&Association) -> bool| {
        table.association_set.items.iter().any(fits)
    };
    let own = tables
        .iter()
        .find(|table| has(table, &|it| it.subnet_id.as_deref() == Some(subnet)));
    // The main table of the VPC counts only for subnets without one of their own.
    let table = own.or_else(|| tables.iter().find(|table| has(table, &|it| it.main)));
    let Some(table) = table else { return false };
    let mut routes = table.route_set.items.iter();
    if is_public {
        routes.any(Route::is_public)
    } else {
        routes.any(Route::is_egress)
    }
}

impl Aws {
    /// VPC and subnets of a region, remembered for ten minutes.
    ///
    /// # Errors
    /// `invalid` if the region has no such network.
    pub(crate) fn network(&self, region: &str, is_public: bool) -> Result<Network> {
        cache::get_or_compute(&format!("network/{region}/{is_public}"), REMEMBERED, || {
            self.find_network(region, is_public)
        })
    }

    fn find_network(&self, region: &str, is_public: bool) -> Result<Network> {
        let ec2 = self.apis.ec2(region)?;
        let (vpc, what) = self.vpc(&ec2, region)?;
        let params = Params::new().filter("vpc-id", [&vpc]);
        let all = ec2.read_all("DescribeSubnets", &params, |page: Subnets| {
            (page.subnet_set.items, page.next_token)
        })?;
        let tables = ec2.read_all("DescribeRouteTables", &params, |page: Tables| {
            (page.route_table_set.items, page.next_token)
        })?;
        let subnets: Vec<Subnet> = all
            .into_iter()
            .filter(|subnet| fits(&tables, &subnet.subnet_id, is_public))
            .map(|subnet| Subnet {
                id: subnet.subnet_id,
                zone: subnet.availability_zone,
            })
            .collect();
        if subnets.is_empty() {
            let kind = if is_public { "public" } else { "private" };
            return Err(BackendError::invalid(format!(
                "Failed to find {kind} subnets for {what} in region {region}"
            )));
        }
        Ok(Network { vpc, subnets })
    }

    /// Id of the VPC, and how it is called in messages.
    fn vpc(&self, ec2: &Api, region: &str) -> Result<(String, String)> {
        let first = |params: Params| -> Result<Option<String>> {
            let found: Vpcs = ec2.read("DescribeVpcs", &params)?;
            Ok(found.vpc_set.items.into_iter().next().map(|vpc| vpc.vpc_id))
        };
        if let Some(name) = &self.config.vpc_name {
            let found = first(Params::new().filter("tag:Name", [name]))?;
            let found = found.ok_or_else(|| {
                BackendError::invalid(format!("No VPC named {name} in region {region}"))
            })?;
            let what = format!("VPC {found}");
            return Ok((found, what));
        }
        let ids = self.config.vpc_ids.as_ref();
        if let Some(id) = ids.and_then(|ids| ids.get(region)) {
            return Ok((id.clone(), format!("VPC {id}")));
        }
        if !self.config.uses_default_vpcs() {
            return Err(BackendError::invalid(format!(
                "No VPC ID configured for region {region}"
            )));
        }
        let found = first(Params::new().filter("is-default", ["true"]))?;
        let found = found
            .ok_or_else(|| BackendError::invalid(format!("No default VPC in region {region}")))?;
        Ok((found, "default VPC".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::{Tables, fits};
    use crate::xml;

    fn table(associations: &str, routes: &str) -> String {
        format!(
            "<item><associationSet>{associations}</associationSet><routeSet>{routes}</routeSet></item>"
        )
    }

    #[test]
    fn a_subnets_own_table_decides_else_the_main_one() {
        let local = "<item><destinationCidrBlock>10.0.0.0/16</destinationCidrBlock><gatewayId>local</gatewayId></item>";
        let internet = "<item><destinationCidrBlock>0.0.0.0/0</destinationCidrBlock><gatewayId>igw-1</gatewayId></item>";
        let nat = "<item><destinationCidrBlock>0.0.0.0/0</destinationCidrBlock><natGatewayId>nat-1</natGatewayId></item>";
        let main = "<item><main>true</main></item>";
        let own =
            |subnet: &str| format!("<item><main>false</main><subnetId>{subnet}</subnetId></item>");
        let text = format!(
            "<R><routeTableSet>{}{}{}</routeTableSet></R>",
            table(main, &format!("{local}{internet}")),
            table(&own("private"), &format!("{local}{nat}")),
            table(&own("closed"), local),
        );
        let tables = xml::read::<Tables>("x", text.as_bytes()).unwrap();
        let tables = tables.route_table_set.items;
        for (subnet, public, private) in [
            ("other", true, false),
            ("private", false, true),
            ("closed", false, false),
        ] {
            assert_eq!(fits(&tables, subnet, true), public, "{subnet}");
            assert_eq!(fits(&tables, subnet, false), private, "{subnet}");
        }
    }
}
