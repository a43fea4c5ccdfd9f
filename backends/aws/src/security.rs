//! Security groups: one for the machines of a project, one for its gateways.

use std::time::Duration;

use dstack_backend_sdk::host::cache;
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::rest::wait_until;
use serde::Deserialize;

use crate::backend::Aws;
use crate::client::Api;
use crate::errors;
use crate::network::REMEMBERED;
use crate::params::Params;
use crate::xml::Set;

/// How long a group that was just made may be unknown.
const PATIENCE: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_secs(1);
const ANYWHERE: &str = "0.0.0.0/0";
/// All protocols and ports.
const ALL: &str = "-1";

/// Who is behind a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Machines: SSH from anywhere, everything among themselves.
    Machines,
    /// Gateways: SSH and the web from anywhere.
    Gateways,
}

impl Role {
    fn group_name(self, project: &str) -> String {
        let project = project.replace('-', "_").to_lowercase();
        match self {
            Self::Machines => format!("dstack_security_group_{project}"),
            Self::Gateways => format!("dstack_gw_sg_{project}"),
        }
    }

    const fn ports(self) -> &'static [u16] {
        match self {
            Self::Machines => &[22],
            Self::Gateways => &[22, 80, 443],
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Groups {
    #[serde(default)]
    security_group_info: Set<Group>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    group_id: String,
    #[serde(default)]
    ip_permissions: Set<Permission>,
    #[serde(default)]
    ip_permissions_egress: Set<Permission>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Permission {
    ip_protocol: String,
    from_port: Option<String>,
    #[serde(default)]
    groups: Set<Pair>,
    #[serde(default)]
    ip_ranges: Set<IpRange>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pair {
    group_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct IpRange {
    cidr_ip: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    group_id: String,
}

/// A rule that a group must have.
#[derive(Debug, Clone, Copy)]
struct Rule {
    is_ingress: bool,
    /// A port of TCP; `None` is everything.
    port: Option<u16>,
    is_from_itself: bool,
}

impl Rule {
    fn stands_in(&self, group: &Group) -> bool {
        let permissions = if self.is_ingress {
            &group.ip_permissions
        } else {
            &group.ip_permissions_egress
        };
        permissions.items.iter().any(|permission| {
            let has_port = match self.port {
                None => permission.ip_protocol == ALL,
                Some(port) => {
                    permission.ip_protocol == "tcp"
                        && permission.from_port.as_deref() == Some(port.to_string().as_str())
                }
            };
            let has_source = if self.is_from_itself {
                let mut pairs = permission.groups.items.iter();
                pairs.any(|pair| pair.group_id.as_deref() == Some(&group.group_id))
            } else {
                let mut ranges = permission.ip_ranges.items.iter();
                ranges.any(|range| range.cidr_ip == ANYWHERE)
            };
            has_port && has_source
        })
    }

    fn add_to(&self, ec2: &Api, group: &str) -> Result<()> {
        let action = if self.is_ingress {
            "AuthorizeSecurityGroupIngress"
        } else {
            "AuthorizeSecurityGroupEgress"
        };
        let mut params = Params::new().set("GroupId", group);
        params = match self.port {
            None => params.set("IpPermissions.1.IpProtocol", ALL),
            Some(port) => params
                .set("IpPermissions.1.IpProtocol", "tcp")
                .set("IpPermissions.1.FromPort", port)
                .set("IpPermissions.1.ToPort", port),
        };
        params = if self.is_from_itself {
            params.set("IpPermissions.1.Groups.1.GroupId", group)
        } else {
            params.set("IpPermissions.1.IpRanges.1.CidrIp", ANYWHERE)
        };
        wait_until("the security group", PAUSE, PATIENCE, || {
            match ec2.done(action, &params) {
                // Somebody else has just done it.
                Err(error) if errors::is(&error, &["InvalidPermission.Duplicate"]) => Ok(Some(())),
                // It was made a moment ago and is not known everywhere yet.
                Err(error) if errors::is(&error, &["InvalidGroup.NotFound"]) => Ok(None),
                other => other.map(Some),
            }
        })
    }
}

fn rules(role: Role) -> Vec<Rule> {
    let everything = |is_ingress: bool, is_from_itself: bool| Rule {
        is_ingress,
        port: None,
        is_from_itself,
    };
    let mut rules: Vec<Rule> = role
        .ports()
        .iter()
        .map(|port| Rule {
            is_ingress: true,
            port: Some(*port),
            is_from_itself: false,
        })
        .collect();
    rules.push(everything(false, false));
    if role == Role::Machines {
        // Fast network interfaces ask for both by name: what is open to everybody is not enough for them.
        rules.extend([everything(true, true), everything(false, true)]);
    }
    rules
}

impl Aws {
    /// Id of the group of a project in a VPC; it is made if there is none, and remembered for ten minutes.
    pub(crate) fn security_group(
        &self,
        region: &str,
        vpc: &str,
        project: &str,
        role: Role,
    ) -> Result<String> {
        let name = role.group_name(project);
        cache::get_or_compute(&format!("group/{region}/{vpc}/{name}"), REMEMBERED, || {
            let ec2 = self.apis.ec2(region)?;
            let group = match find(&ec2, vpc, &name)? {
                Some(group) => group,
                None => self.make_group(&ec2, vpc, &name, project)?,
            };
            for rule in rules(role) {
                if !rule.stands_in(&group) {
                    rule.add_to(&ec2, &group.group_id)?;
                }
            }
            Ok(group.group_id)
        })
    }

    fn make_group(&self, ec2: &Api, vpc: &str, name: &str, project: &str) -> Result<Group> {
        let base = tags::Tags::from([
            ("owner".to_owned(), "dstack".to_owned()),
            ("dstack_project".to_owned(), project.to_owned()),
            ("Name".to_owned(), name.to_owned()),
        ]);
        let params = Params::new()
            .set("GroupName", name)
            .set("GroupDescription", "Made by dstack")
            .set("VpcId", vpc)
            .tags(
                "security-group",
                &tags::merge(&base, Some(&self.config.tags()), None),
            );
        let made = ec2.change::<Made>("CreateSecurityGroup", &params);
        let group = match made {
            Ok(made) => Group {
                group_id: made.group_id,
                ip_permissions: Set::default(),
                ip_permissions_egress: Set::default(),
            },
            // Somebody else has just made it.
            Err(error) if errors::is(&error, &["InvalidGroup.Duplicate"]) => {
                return find(ec2, vpc, name)?.ok_or(error);
            }
            Err(error) => return Err(error),
        };
        Ok(group)
    }
}

fn find(ec2: &Api, vpc: &str, name: &str) -> Result<Option<Group>> {
    let params = Params::new()
        .filter("vpc-id", [vpc])
        .filter("group-name", [name]);
    let found: Groups = ec2.read("DescribeSecurityGroups", &params)?;
    Ok(found.security_group_info.items.into_iter().next())
}

#[cfg(test)]
mod tests {
    use super::{Group, Groups, Role, rules};
    use crate::xml;

    fn group(text: &str) -> Group {
        let text = format!(
            "<R><securityGroupInfo><item><groupId>sg-1</groupId>{text}</item></securityGroupInfo></R>"
        );
        let groups: Groups = xml::read("x", text.as_bytes()).unwrap();
        groups.security_group_info.items.into_iter().next().unwrap()
    }

    #[test]
    fn only_missing_rules_are_added() {
        let missing = |group: &Group, role| {
            rules(role)
                .iter()
                .filter(|rule| !rule.stands_in(group))
                .count()
        };
        let fresh = group(
            "<ipPermissions/><ipPermissionsEgress><item><ipProtocol>-1</ipProtocol><ipRanges><item><cidrIp>0.0.0.0/0</cidrIp></item></ipRanges></item></ipPermissionsEgress>",
        );
        assert_eq!(missing(&fresh, Role::Machines), 3);
        assert_eq!(missing(&fresh, Role::Gateways), 3);
        let itself = "<item><ipProtocol>-1</ipProtocol><groups><item><groupId>sg-1</groupId></item></groups><ipRanges/></item>";
        let whole = group(&format!(
            "<ipPermissions><item><ipProtocol>tcp</ipProtocol><fromPort>22</fromPort><toPort>22</toPort><ipRanges><item><cidrIp>0.0.0.0/0</cidrIp></item></ipRanges></item>{itself}</ipPermissions>\
             <ipPermissionsEgress>{itself}<item><ipProtocol>-1</ipProtocol><ipRanges><item><cidrIp>0.0.0.0/0</cidrIp></item></ipRanges></item></ipPermissionsEgress>"
        ));
        assert_eq!(missing(&whole, Role::Machines), 0);
        assert_eq!(missing(&whole, Role::Gateways), 2);
    }

    #[test]
    fn names_are_those_of_the_project() {
        assert_eq!(
            Role::Machines.group_name("My-Team"),
            "dstack_security_group_my_team"
        );
        assert_eq!(Role::Gateways.group_name("main"), "dstack_gw_sg_main");
    }
}
