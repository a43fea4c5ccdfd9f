//! A fake of the actions of EC2, ELB, STS and Service Quotas that the backend uses, as their API references describe them.

use std::collections::BTreeMap;

use dstack_backend_conformance::{FakeProvider, Reply, Request, Resource, Scenario};
use serde_json::{Value, json};

const KEY: &str = "AKIAFAKEFAKEFAKE";
const LAUNCHED: &str = "2026-01-01T00:00:00.000Z";
const TAG: &str = "dstack_provider_ref";

/// A section of `config.yml` that this cloud accepts.
pub(crate) fn config() -> Value {
    let creds =
        json!({"type": "access_key", "access_key": KEY, "secret_key": "fake-secret-key-of-aws"});
    json!({"type": "aws", "regions": ["us-east-1", "eu-west-1"], "creds": creds})
}

type Tags = BTreeMap<String, String>;

struct Machine {
    id: String,
    region: String,
    zone: String,
    state: &'static str,
    token: String,
    tags: Tags,
    spot: bool,
}

struct Disk {
    id: String,
    region: String,
    zone: String,
    size: String,
    tags: Tags,
    on: Option<(String, String)>,
}

struct Group {
    id: String,
    name: String,
    region: String,
    rules: Vec<(bool, String)>,
}

#[derive(Default)]
pub(crate) struct Cloud {
    machines: Vec<Machine>,
    disks: Vec<Disk>,
    groups: Vec<Group>,
    placements: Vec<(String, String)>,
    balancers: Vec<(String, String)>,
    made: u64,
    fails_late: bool,
}

/// Parameters of a request, wherever they stand.
struct Asked<'r>(&'r Request);

impl Asked<'_> {
    fn get(&self, name: &str) -> String {
        let query = self.0.query(name).map(str::to_owned);
        query.or_else(|| self.0.form(name)).unwrap_or_default()
    }

    fn list(&self, name: &str) -> Vec<String> {
        let all = (1..).map(|at| self.get(&format!("{name}.{at}")));
        all.take_while(|value| !value.is_empty()).collect()
    }

    fn filters(&self) -> Vec<(String, Vec<String>)> {
        let names = (1..).map(|at| (at, self.get(&format!("Filter.{at}.Name"))));
        names
            .take_while(|(_, name)| !name.is_empty())
            .map(|(at, name)| (name, self.list(&format!("Filter.{at}.Value"))))
            .collect()
    }

    fn tags(&self) -> Tags {
        let key = |at: u32| self.get(&format!("TagSpecification.1.Tag.{at}.Key"));
        let all = (1..).map(|at| (at, key(at)));
        all.take_while(|(_, key)| !key.is_empty())
            .map(|(at, key)| (key, self.get(&format!("TagSpecification.1.Tag.{at}.Value"))))
            .collect()
    }

    /// Third word of the credential's scope.
    fn region(&self) -> String {
        let login = self.0.header("authorization").unwrap_or_default();
        login.split('/').nth(2).unwrap_or_default().to_owned()
    }
}

fn answer(inner: &str) -> Reply {
    Reply::bytes(
        200,
        format!("<?xml version=\"1.0\"?><Response>{inner}</Response>"),
    )
}

pub(crate) fn refused(status: u16, code: &str) -> Reply {
    let error = format!("<Error><Code>{code}</Code><Message>refused: {code}</Message></Error>");
    Reply::bytes(
        status,
        format!(
            "<?xml version=\"1.0\"?><Response><Errors>{error}</Errors><RequestID>r</RequestID></Response>"
        ),
    )
}

fn items<T>(all: impl IntoIterator<Item = T>, show: impl Fn(T) -> String) -> String {
    let all = all
        .into_iter()
        .map(|it| format!("<item>{}</item>", show(it)));
    all.collect()
}

fn tag_set(tags: &Tags) -> String {
    let pair = |(key, value): (&String, &String)| format!("<key>{key}</key><value>{value}</value>");
    format!("<tagSet>{}</tagSet>", items(tags, pair))
}

fn has_tag(tags: &Tags, name: &str, values: &[String]) -> bool {
    if name == "tag-key" {
        return values.iter().any(|value| tags.contains_key(value));
    }
    let value = name.strip_prefix("tag:").and_then(|key| tags.get(key));
    value.is_some_and(|value| values.contains(value))
}

impl Machine {
    fn fits(&self, filters: &[(String, Vec<String>)]) -> bool {
        filters.iter().all(|(name, values)| match name.as_str() {
            "instance-state-name" => values.iter().any(|value| value == self.state),
            "client-token" => values.contains(&self.token),
            _ => has_tag(&self.tags, name, values),
        })
    }

    fn show(&self, disks: &[Disk]) -> String {
        let address = if self.state == "running" {
            "<ipAddress>203.0.113.7</ipAddress>"
        } else {
            ""
        };
        let request = if self.spot {
            "<spotInstanceRequestId>sir-1</spotInstanceRequestId>"
        } else {
            ""
        };
        let on = disks.iter().filter_map(|disk| disk.on.as_ref());
        let on = on.filter(|(machine, _)| *machine == self.id);
        format!(
            "<instanceId>{}</instanceId><instanceState><code>0</code><name>{}</name></instanceState>\
             <privateIpAddress>10.0.0.7</privateIpAddress>{address}{request}<launchTime>{LAUNCHED}</launchTime>\
             <placement><availabilityZone>{}</availabilityZone><tenancy>default</tenancy></placement>\
             <blockDeviceMapping>{}</blockDeviceMapping>{}",
            self.id,
            self.state,
            self.zone,
            items(on, |(_, device)| format!(
                "<deviceName>{device}</deviceName>"
            )),
            tag_set(&self.tags)
        )
    }
}

impl Disk {
    fn show(&self) -> String {
        let on = items(&self.on, |(machine, device)| {
            format!(
                "<instanceId>{machine}</instanceId><device>{device}</device><status>attached</status>"
            )
        });
        format!(
            "<volumeId>{}</volumeId><size>{}</size><availabilityZone>{}</availabilityZone><status>available</status>\
             <volumeType>gp3</volumeType><iops>3000</iops><attachmentSet>{on}</attachmentSet>{}",
            self.id,
            self.size,
            self.zone,
            tag_set(&self.tags)
        )
    }
}

impl Cloud {
    fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{:017x}", self.made)
    }

    fn run(&mut self, asked: &Asked<'_>) -> Reply {
        let (token, tags) = (asked.get("ClientToken"), asked.tags());
        let known = self
            .machines
            .iter()
            .position(|it| !token.is_empty() && it.token == token);
        let at = match known {
            Some(at) if self.machines[at].tags != tags => {
                return refused(400, "IdempotentParameterMismatch");
            }
            Some(at) => at,
            None => {
                let subnet = asked.get("NetworkInterface.1.SubnetId");
                let id = self.id("i");
                self.machines.push(Machine {
                    id,
                    region: asked.region(),
                    zone: subnet.trim_start_matches("subnet-").to_owned(),
                    state: "pending",
                    token,
                    tags,
                    spot: asked.get("InstanceMarketOptions.MarketType") == "spot",
                });
                self.machines.len() - 1
            }
        };
        let shown = self.machines[at].show(&self.disks);
        answer(&format!(
            "<instancesSet><item>{shown}</item></instancesSet>"
        ))
    }

    /// A look finds machines one step further than the last: this cloud has no clock.
    fn look(&mut self, asked: &Asked<'_>) -> Reply {
        let (ids, filters, region) = (asked.list("InstanceId"), asked.filters(), asked.region());
        let is_known = |id: &String| self.machines.iter().any(|it| it.id == *id);
        if !ids.iter().all(is_known) {
            return refused(400, "InvalidInstanceID.NotFound");
        }
        let is_asked = |it: &Machine| {
            it.region == region && (ids.is_empty() || ids.contains(&it.id)) && it.fits(&filters)
        };
        let found = self.machines.iter().filter(|it| is_asked(it));
        let shown = items(found, |it| {
            format!(
                "<instancesSet><item>{}</item></instancesSet>",
                it.show(&self.disks)
            )
        });
        for machine in self.machines.iter_mut().filter(|it| ids.contains(&it.id)) {
            machine.state = match machine.state {
                "pending" if self.fails_late => "terminated",
                "pending" => "running",
                "shutting-down" => "terminated",
                other => other,
            };
        }
        answer(&format!("<reservationSet>{shown}</reservationSet>"))
    }

    fn terminate(&mut self, asked: &Asked<'_>) -> Reply {
        let id = asked.get("InstanceId.1");
        let Some(machine) = self.machines.iter_mut().find(|it| it.id == id) else {
            return refused(400, "InvalidInstanceID.NotFound");
        };
        machine.state = match machine.state {
            "shutting-down" | "terminated" => "terminated",
            _ => "shutting-down",
        };
        let state = machine.state;
        for disk in &mut self.disks {
            disk.on.take_if(|(machine, _)| *machine == id);
        }
        answer(&format!(
            "<instancesSet><item><instanceId>{id}</instanceId><currentState><name>{state}</name></currentState></item></instancesSet>"
        ))
    }

    fn groups(&mut self, asked: &Asked<'_>) -> Reply {
        let region = asked.region();
        let filters = asked.filters();
        let fits = |group: &&Group| {
            group.region == region
                && filters
                    .iter()
                    .all(|(name, values)| name != "group-name" || values.contains(&group.name))
        };
        let shown = items(self.groups.iter().filter(fits), |group| {
            let side = |is_ingress: bool| -> String {
                let rules = group.rules.iter().filter(|(it, _)| *it == is_ingress);
                rules.map(|(_, rule)| rule.clone()).collect()
            };
            format!(
                "<groupId>{}</groupId><ipPermissions>{}</ipPermissions><ipPermissionsEgress>{}</ipPermissionsEgress>",
                group.id,
                side(true),
                side(false)
            )
        });
        answer(&format!("<securityGroupInfo>{shown}</securityGroupInfo>"))
    }

    fn make_group(&mut self, asked: &Asked<'_>) -> Reply {
        let (name, region) = (asked.get("GroupName"), asked.region());
        if self
            .groups
            .iter()
            .any(|it| it.name == name && it.region == region)
        {
            return refused(400, "InvalidGroup.Duplicate");
        }
        let id = self.id("sg");
        let shown = answer(&format!("<groupId>{id}</groupId>"));
        let rules = Vec::new();
        self.groups.push(Group {
            id,
            name,
            region,
            rules,
        });
        shown
    }

    fn authorize(&mut self, asked: &Asked<'_>, is_ingress: bool) -> Reply {
        let rule = |name: &str| asked.get(&format!("IpPermissions.1.{name}"));
        let port = rule("FromPort");
        let from = if port.is_empty() {
            String::new()
        } else {
            format!("<fromPort>{port}</fromPort><toPort>{port}</toPort>")
        };
        let (range, other) = (rule("IpRanges.1.CidrIp"), rule("Groups.1.GroupId"));
        let source = if range.is_empty() {
            format!("<groups><item><groupId>{other}</groupId></item></groups>")
        } else {
            format!("<ipRanges><item><cidrIp>{range}</cidrIp></item></ipRanges>")
        };
        let text = format!(
            "<item><ipProtocol>{}</ipProtocol>{from}{source}</item>",
            rule("IpProtocol")
        );
        let id = asked.get("GroupId");
        let Some(group) = self.groups.iter_mut().find(|it| it.id == id) else {
            return refused(400, "InvalidGroup.NotFound");
        };
        if group.rules.contains(&(is_ingress, text.clone())) {
            return refused(400, "InvalidPermission.Duplicate");
        }
        group.rules.push((is_ingress, text));
        answer("<return>true</return>")
    }

    fn make_disk(&mut self, asked: &Asked<'_>) -> Reply {
        let id = self.id("vol");
        let disk = Disk {
            id,
            region: asked.region(),
            zone: asked.get("AvailabilityZone"),
            size: asked.get("Size"),
            tags: asked.tags(),
            on: None,
        };
        let shown = answer(&disk.show());
        self.disks.push(disk);
        shown
    }

    fn disks(&self, asked: &Asked<'_>) -> Reply {
        let (ids, filters, region) = (asked.list("VolumeId"), asked.filters(), asked.region());
        if !ids
            .iter()
            .all(|id| self.disks.iter().any(|it| it.id == *id))
        {
            return refused(400, "InvalidVolume.NotFound");
        }
        let is_asked = |it: &&Disk| {
            it.region == region
                && (ids.is_empty() || ids.contains(&it.id))
                && filters
                    .iter()
                    .all(|(name, values)| has_tag(&it.tags, name, values))
        };
        let shown = items(self.disks.iter().filter(is_asked), Disk::show);
        answer(&format!("<volumeSet>{shown}</volumeSet>"))
    }

    fn change_disk(
        &mut self,
        asked: &Asked<'_>,
        change: impl FnOnce(&mut Disk) -> Option<&'static str>,
    ) -> Reply {
        let id = asked.get("VolumeId");
        match self.disks.iter_mut().find(|it| it.id == id) {
            None => refused(400, "InvalidVolume.NotFound"),
            Some(disk) => match change(disk) {
                Some(code) => refused(400, code),
                None => answer("<return>true</return>"),
            },
        }
    }

    fn disk_action(&mut self, action: &str, asked: &Asked<'_>) -> Reply {
        let machine = asked.get("InstanceId");
        match action {
            "AttachVolume" => {
                let device = asked.get("Device");
                self.change_disk(asked, |disk| {
                    if disk.on.is_some() {
                        return Some("VolumeInUse");
                    }
                    disk.on = Some((machine, device));
                    None
                })
            }
            "DetachVolume" => self.change_disk(asked, |disk| match disk.on.take() {
                Some(_) => None,
                None => Some("IncorrectState"),
            }),
            _ => {
                let reply = self.change_disk(asked, |disk| disk.on.as_ref().map(|_| "VolumeInUse"));
                if reply == answer("<return>true</return>") {
                    let id = asked.get("VolumeId");
                    self.disks.retain(|it| it.id != id);
                }
                reply
            }
        }
    }

    fn placement(&mut self, action: &str, asked: &Asked<'_>) -> Reply {
        let group = (asked.region(), asked.get("GroupName"));
        let is_known = self.placements.contains(&group);
        match (action, is_known) {
            ("CreatePlacementGroup", true) => refused(400, "InvalidPlacementGroup.Duplicate"),
            ("CreatePlacementGroup", false) => {
                self.placements.push(group);
                answer("<return>true</return>")
            }
            (_, false) => refused(400, "InvalidPlacementGroup.Unknown"),
            (_, true) => {
                self.placements.retain(|it| *it != group);
                answer("<return>true</return>")
            }
        }
    }

    /// Load balancers, target groups and listeners: things with names.
    fn balancer(&mut self, action: &str, asked: &Asked<'_>) -> Option<Reply> {
        let done = || answer("");
        let named = |kind: &str, name: &str| format!("arn:{kind}/{name}");
        let result = |list: &str, inner: String| {
            answer(&format!(
                "<{action}Result><{list}><member>{inner}</member></{list}></{action}Result>"
            ))
        };
        let mut make = |kind: &str, name: String| {
            let arn = named(kind, &name);
            if !self.balancers.iter().any(|(_, known)| *known == arn) {
                self.balancers.push((kind.to_owned(), arn.clone()));
            }
            arn
        };
        Some(match action {
            "CreateLoadBalancer" => {
                let arn = make("load_balancer", asked.get("Name"));
                let arn = format!(
                    "<LoadBalancerArn>{arn}</LoadBalancerArn><DNSName>lb.example</DNSName>"
                );
                result("LoadBalancers", arn)
            }
            "CreateTargetGroup" => {
                let arn = make("target_group", asked.get("Name"));
                result(
                    "TargetGroups",
                    format!("<TargetGroupArn>{arn}</TargetGroupArn>"),
                )
            }
            "CreateListener" => {
                let arn = make("listener", asked.get("Port"));
                result("Listeners", format!("<ListenerArn>{arn}</ListenerArn>"))
            }
            "RegisterTargets" | "DeregisterTargets" => done(),
            "DeleteLoadBalancer" | "DeleteTargetGroup" | "DeleteListener" => {
                let kind = action.strip_prefix("Delete").unwrap_or_default();
                let arn = asked.get(&format!("{kind}Arn"));
                let count = self.balancers.len();
                self.balancers.retain(|(_, known)| *known != arn);
                if self.balancers.len() == count {
                    return Some(refused(400, &format!("{kind}NotFound")));
                }
                done()
            }
            _ => return None,
        })
    }
}

fn zones(region: &str) -> [String; 2] {
    [format!("{region}a"), format!("{region}b")]
}

/// What stands in every account.
fn given(action: &str, asked: &Asked<'_>) -> Option<Reply> {
    let region = asked.region();
    let subnet = |zone: String| {
        format!("<subnetId>subnet-{zone}</subnetId><availabilityZone>{zone}</availabilityZone>")
    };
    let zone =
        |zone: String| format!("<zoneName>{zone}</zoneName><zoneState>available</zoneState>");
    Some(match action {
        "GetCallerIdentity" => answer(
            "<GetCallerIdentityResult><Account>123456789012</Account></GetCallerIdentityResult>",
        ),
        "DescribeAvailabilityZones" => answer(&format!(
            "<availabilityZoneInfo>{}</availabilityZoneInfo>",
            items(zones(&region), zone)
        )),
        "DescribeVpcs" => answer("<vpcSet><item><vpcId>vpc-1</vpcId></item></vpcSet>"),
        "DescribeSubnets" => answer(&format!(
            "<subnetSet>{}</subnetSet>",
            items(zones(&region), subnet)
        )),
        "DescribeRouteTables" => answer(
            "<routeTableSet><item><associationSet><item><main>true</main></item></associationSet><routeSet><item>\
             <destinationCidrBlock>0.0.0.0/0</destinationCidrBlock><gatewayId>igw-1</gatewayId></item></routeSet></item></routeTableSet>",
        ),
        "DescribeImages" => answer(
            "<imagesSet><item><imageId>ami-1</imageId><creationDate>2026-01-01T00:00:00.000Z</creationDate>\
             <rootDeviceName>/dev/sda1</rootDeviceName></item></imagesSet>",
        ),
        "DescribeInstanceTypes" => answer("<instanceTypeSet/>"),
        "DescribeAddresses" => answer("<addressesSet/>"),
        "CancelSpotInstanceRequests" => answer("<spotInstanceRequestSet/>"),
        "DescribeCapacityReservations" => refused(400, "InvalidCapacityReservationId.NotFound"),
        _ => return None,
    })
}

fn act(cloud: &mut Cloud, request: &Request) -> Reply {
    if request.header("x-amz-target").is_some() {
        return Reply::json(200, &json!({"Quota": {"Value": 64.0}}));
    }
    let asked = Asked(request);
    let action = asked.get("Action");
    if let Some(reply) = given(&action, &asked).or_else(|| cloud.balancer(&action, &asked)) {
        return reply;
    }
    match action.as_str() {
        "RunInstances" => cloud.run(&asked),
        "DescribeInstances" => cloud.look(&asked),
        "TerminateInstances" => cloud.terminate(&asked),
        "DescribeSecurityGroups" => cloud.groups(&asked),
        "CreateSecurityGroup" => cloud.make_group(&asked),
        "AuthorizeSecurityGroupIngress" => cloud.authorize(&asked, true),
        "AuthorizeSecurityGroupEgress" => cloud.authorize(&asked, false),
        "CreateVolume" => cloud.make_disk(&asked),
        "DescribeVolumes" => cloud.disks(&asked),
        "AttachVolume" | "DetachVolume" | "DeleteVolume" => cloud.disk_action(&action, &asked),
        "CreatePlacementGroup" | "DeletePlacementGroup" => cloud.placement(&action, &asked),
        _ => refused(400, "InvalidAction"),
    }
}

fn stands(cloud: &mut Cloud) -> Vec<Resource> {
    let machines = cloud
        .machines
        .iter()
        .filter(|it| !matches!(it.state, "shutting-down" | "terminated"))
        .map(|it| Resource::new("instance", &it.id).with_ref(it.tags.get(TAG)));
    let disks = cloud.disks.iter();
    let disks = disks.map(|it| Resource::new("volume", &it.id).with_ref(it.tags.get(TAG)));
    let placements = cloud.placements.iter();
    let placements = placements.map(|(_, name)| Resource::new("placement_group", name));
    let balancers = cloud.balancers.iter();
    let balancers = balancers.map(|(kind, arn)| Resource::new(kind, arn));
    machines
        .chain(disks)
        .chain(placements)
        .chain(balancers)
        .collect()
}

fn does(request: &Request, action: &str) -> bool {
    Asked(request).get("Action") == action
}

pub(crate) fn fake() -> FakeProvider<Cloud> {
    FakeProvider::new(Cloud::default)
        .guard(|_, request| {
            let login = request.header("authorization").unwrap_or_default();
            let is_ours = login.starts_with(&format!("AWS4-HMAC-SHA256 Credential={KEY}/"));
            (!is_ours).then(|| refused(401, "AuthFailure"))
        })
        .route("* /", act)
        .inventory(stands)
        .scenario(Scenario::NoCapacity, |_, request| {
            does(request, "RunInstances").then(|| refused(500, "InsufficientInstanceCapacity"))
        })
        .scenario(Scenario::NoCapacityLate, |cloud, _| {
            cloud.fails_late = true;
            None
        })
        .scenario(Scenario::Quota, |_, request| {
            does(request, "RunInstances").then(|| refused(400, "VcpuLimitExceeded"))
        })
        .scenario(Scenario::VolumeQuota, |_, request| {
            does(request, "CreateVolume").then(|| refused(400, "VolumeLimitExceeded"))
        })
}
