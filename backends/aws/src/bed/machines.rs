//! Machines: made once, completed, found, deleted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dstack_backend_sdk::boot::{AgentUrls, ShimSetup};
use dstack_backend_sdk::prelude::*;
use dstack_backend_sdk::types::services::CATALOG;
use serde_json::{Value, json};

use super::{Bed, REGION, RUNNER, SHIM, read};
use crate::machines::of_attempt;
use crate::params::Params;
use crate::{addresses, machines};

const REF: &str = "0123456789abcdef";

pub(crate) fn offer(name: &str, spot: bool) -> Value {
    let gpus = if name.starts_with('p') {
        json!([{"name": "H100", "memory_mib": 81920, "vendor": "nvidia"}])
    } else {
        json!([])
    };
    json!({
        "backend": "aws", "region": REGION, "price": 0.1, "availability": "unknown",
        "availability_zones": ["us-east-1a", "us-east-1b", "us-east-1c"],
        "instance": {"name": name, "resources": {
            "cpus": 2, "memory_mib": 8192, "gpus": gpus, "spot": spot, "disk": {"size_mib": 102_400},
        }},
    })
}

pub(crate) fn order(offer: Value, reference: &str, more: &Value) -> CreateInstanceRequest {
    let mut config = json!({
        "project_name": "main", "instance_name": "run-0-0", "user": "me", "provider_ref": reference,
        "ssh_keys": [{"public": "ssh-ed25519 AAAA project"}],
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    read(json!({"offer": offer, "config": config}))
}

impl Bed {
    pub(crate) fn make(&self, reference: &str) -> Result<JobProvisioningData> {
        self.make_of(offer("m5.large", false), reference)
    }

    pub(crate) fn make_of(&self, offer: Value, reference: &str) -> Result<JobProvisioningData> {
        let made = self
            .aws
            .create_instance(&order(offer, reference, &json!({})));
        made.map(|reply| reply.provisioning_data)
    }

    /// Looks until the machine has its address.
    pub(crate) fn complete(&self, mut data: JobProvisioningData) -> JobProvisioningData {
        for _ in 0..5 {
            let key = json!({"public": "k"});
            let request = json!({"provisioning_data": data, "project_key": key});
            let reply = self.aws.update_provisioning_data(&read(request)).unwrap();
            data = reply.provisioning_data;
            if data.hostname.is_some() {
                return data;
            }
        }
        panic!("no address: {data:?}");
    }

    pub(crate) fn end(&self, data: &JobProvisioningData) {
        let request = TerminateInstanceRequest {
            instance_id: data.instance_id.clone(),
            region: data.region.clone(),
            backend_data: data.backend_data.clone(),
        };
        for _ in 0..5 {
            match self.aws.terminate_instance(&request) {
                Ok(_) => return,
                Err(error) => assert_eq!(error.kind, ErrorKind::NotYetTerminated, "{error}"),
            }
        }
        panic!("{} does not end", data.instance_id);
    }

    fn alive(&self, reference: &str) -> usize {
        let ec2 = self.aws.apis.ec2(REGION).unwrap();
        of_attempt(&ec2, reference).unwrap().len()
    }
}

#[test]
fn a_configuration_is_checked_with_the_account() {
    let bed = Bed::without_internet(&json!({"iam_instance_profile": "none-such"}));
    let configurator = crate::configurator::AwsConfigurator;
    let mut config = bed.aws.config.clone();
    let error = configurator.check(&config).unwrap_err();
    assert!(
        error.message.contains("no instance profile none-such"),
        "{error}"
    );
    config.iam_instance_profile = None;
    let error = configurator.check(&config).unwrap_err();
    let expected = "Failed to find public subnets for default VPC in region us-east-1";
    assert_eq!(error.message, expected);
    bed.control("public?region=us-east-1");
    configurator.check(&config).unwrap();
    config.vpc_name = Some("mine".to_owned());
    let aws = crate::backend::Aws::of(config);
    let error = aws.network(REGION, false).unwrap_err();
    assert_eq!(error.message, "No VPC named mine in region us-east-1");
    let health = bed.aws.health(&HealthRequest {}).unwrap();
    assert_eq!(health.message.as_deref(), Some("account 123456789012"));
}

#[test]
fn offers_have_the_zones_and_quotas_of_the_account() {
    let bed = Bed::new(&json!({"regions": [REGION, "eu-west-1"]}));
    let row = |name: &str, location: &str, spot: bool| {
        json!({
            "instance_name": name, "location": location, "price": 1.0, "cpu": 8, "memory": 32.0, "spot": spot,
        })
    };
    let items = [
        row("m5.large", REGION, false),
        row("m5.large", "eu-west-1", false),
        row("m5.large", "sa-east-1", false),
        row("x2gd.medium", REGION, false),
        row("m5.large", REGION, true),
    ];
    bed.host
        .answer(CATALOG, &json!({"version": null, "items": items}));
    let request = |more: Value| {
        let mut requirements =
            json!({"resources": {"cpu": "1..", "memory": "0GB..", "disk": "200GB.."}});
        for (key, value) in more.as_object().unwrap() {
            requirements[key] = value.clone();
        }
        let request = read(json!({"requirements": requirements}));
        bed.aws.get_offers(&request).unwrap().offers
    };
    let offers = request(json!({}));
    assert_eq!(offers.len(), 3, "{offers:?}");
    for offer in &offers {
        assert_eq!(offer.availability, InstanceAvailability::Unknown);
        assert_eq!(offer.instance.resources.disk.size_mib, 200 * 1024);
        let zones = offer.availability_zones.as_ref().unwrap();
        assert!(
            zones.iter().all(|zone| zone.starts_with(&offer.region)),
            "{zones:?}"
        );
    }
    bed.control("reservation?id=cr-1&type=m5.large&zone=us-east-1b&count=1");
    let reserved = request(json!({"reservation": "cr-1"}));
    assert_eq!(reserved.len(), 1, "{reserved:?}");
    assert_eq!(
        reserved[0].availability_zones,
        Some(vec!["us-east-1b".to_owned()])
    );
    assert!(!reserved[0].instance.resources.spot && reserved[0].region == REGION);
    assert!(request(json!({"reservation": "cr-unknown"})).is_empty());
}

#[test]
fn a_machine_is_made_once_whatever_goes_wrong() {
    let bed = Bed::new(&json!({}));
    bed.fault("AuthorizeSecurityGroupIngress", "InvalidGroup.NotFound", 2);
    bed.fault("RunInstances", "InsufficientInstanceCapacity", 2);
    let data = bed.make(REF).unwrap();
    assert_eq!(
        data.availability_zone.as_deref(),
        Some("us-east-1c"),
        "the third zone had one"
    );
    assert_eq!(bed.count("RunInstances"), 3);
    let ingress = bed.count("AuthorizeSecurityGroupIngress");
    assert_eq!(ingress, 4, "a new group may be unknown for a moment");
    assert_eq!(bed.make(REF).unwrap().instance_id, data.instance_id);
    assert_eq!(bed.count("RunInstances"), 3, "it was found");

    let waited = bed.host.waited();
    bed.fault("RunInstances", "RequestLimitExceeded", 2);
    bed.make("throttled0000000").unwrap();
    assert!(bed.host.waited() > waited, "throttling is waited for");

    bed.fault("RunInstances", "InsufficientInstanceCapacity", 3);
    let error = bed.make("nowhere000000000").unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoCapacity);
    assert!(error.message.contains("us-east-1b"), "{error}");
    bed.fault("RunInstances", "VcpuLimitExceeded", 1);
    let before = bed.count("RunInstances");
    assert_eq!(
        bed.make("quota00000000000").unwrap_err().kind,
        ErrorKind::Quota
    );
    assert_eq!(
        bed.count("RunInstances"),
        before + 1,
        "no other zone has more"
    );
    bed.fault("RunInstances", "UnauthorizedOperation", 1);
    assert_eq!(
        bed.make("refused000000000").unwrap_err().kind,
        ErrorKind::Auth
    );

    for action in [
        "RunInstances",
        "CreateSecurityGroup",
        "AuthorizeSecurityGroupIngress",
    ] {
        // A server that has just started remembers no group.
        let bed = Bed::new(&json!({}));
        bed.lose(action);
        let error = bed.make(REF).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Transport, "{action}");
        let again = bed.make(REF).unwrap();
        assert_eq!(bed.alive(REF), 1, "{action}: no second machine");
        assert_eq!(bed.make(REF).unwrap().instance_id, again.instance_id);
    }
}

#[test]
fn a_machine_gets_what_was_ordered_and_ends() {
    let bed = Bed::new(&json!({"tags": {"team": "a"}}));
    let data = bed.complete(bed.make(REF).unwrap());
    assert_eq!(
        (data.username.as_str(), data.ssh_port),
        ("ubuntu", Some(22))
    );
    assert!(data.internal_ip.is_some() && data.hostname != data.internal_ip);
    let ec2 = bed.aws.apis.ec2(REGION).unwrap();
    let machine = machines::get(&ec2, &data.instance_id).unwrap().unwrap();
    for (key, value) in [
        ("owner", "dstack"),
        ("dstack_project", "main"),
        ("dstack_user", "me"),
        ("dstack_provider_ref", REF),
        ("Name", "dstack-main-run-0-0-01234567"),
        ("team", "a"),
    ] {
        assert_eq!(machine.tag(key), Some(value));
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Attribute {
        user_data: Text,
    }
    #[derive(serde::Deserialize)]
    struct Text {
        value: String,
    }
    let params = Params::new()
        .set("InstanceId", &data.instance_id)
        .set("Attribute", "userData");
    let sent: Attribute = ec2.read("DescribeInstanceAttribute", &params).unwrap();
    let sent = String::from_utf8(STANDARD.decode(sent.user_data.value).unwrap()).unwrap();
    // The corpus of the product compares this text with the reference's.
    let urls = AgentUrls {
        shim: SHIM.to_owned(),
        runner: RUNNER.to_owned(),
        version: "1".to_owned(),
    };
    let keys = vec!["ssh-ed25519 AAAA project".to_owned()];
    let expected = ShimSetup::new(urls, CpuArchitecture::X86, keys).user_data();
    assert_eq!(sent, expected);

    bed.end(&data);
    let request = json!({"provisioning_data": data, "project_key": {"public": "k"}});
    let error = bed
        .aws
        .update_provisioning_data(&read(request))
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Provisioning);
    let unknown = JobProvisioningData {
        instance_id: "i-0123456789abcdef0".to_owned(),
        ..data
    };
    bed.end(&unknown);
}

#[test]
fn what_nobody_knows_of_is_listed_and_deleted_and_nothing_else() {
    let bed = Bed::new(&json!({}));
    let kept = bed.make("kept000000000000").unwrap();
    bed.make(REF).unwrap();
    let groups = || {
        let listed = bed
            .aws
            .list_resource_groups(&ListResourceGroupsRequest::default());
        let listed = listed.unwrap();
        assert!(listed.failures.is_empty());
        listed.groups
    };
    let all = groups();
    assert_eq!(all.len(), 2);
    let orphan = all
        .into_iter()
        .find(|group| group.provider_ref == REF)
        .unwrap();
    assert!(orphan.primary_id.is_some() && orphan.created_at_us.is_some());
    for _ in 0..2 {
        let request = DeleteResourceGroupRequest {
            group: orphan.clone(),
        };
        bed.aws.delete_resource_group(&request).unwrap();
    }
    let left = groups();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].primary_id.as_ref(), Some(&kept.instance_id));
}

#[test]
fn spot_machines_and_those_with_many_interfaces() {
    let bed = Bed::new(&json!({}));
    bed.make_of(offer("m5.large", true), "spot000000000000")
        .unwrap();
    assert_eq!(bed.count("CancelSpotInstanceRequests"), 1);

    let data = bed.make_of(offer("p5.48xlarge", false), REF).unwrap();
    bed.lose("AllocateAddress");
    let key = json!({"public": "k"});
    let look = |data: &JobProvisioningData| {
        let request = json!({"provisioning_data": data, "project_key": key});
        bed.aws.update_provisioning_data(&read(request))
    };
    // It is starting at first.
    let lost = (0..5).find_map(|_| look(&data).err()).unwrap();
    assert_eq!(lost.kind, ErrorKind::Transport);
    let data = bed.complete(data);
    let kept = data.backend_data.clone().unwrap();
    assert!(kept.contains("eip_allocation_id"), "{kept}");
    let ec2 = bed.aws.apis.ec2(REGION).unwrap();
    let addresses = addresses::list(&ec2, &Params::new()).unwrap();
    assert_eq!(addresses.len(), 1, "the lost one was found");
    assert_eq!(addresses[0].reference(), Some(REF));
    // The bed keeps one interface of each device index; all of them were ordered.
    let ordered = "NetworkInterface.32.NetworkCardIndex=31&";
    let mut requests = bed.host.requests().into_iter();
    assert!(requests.any(|it| String::from_utf8_lossy(&it.body).contains(ordered)));
    bed.end(&data);
    assert!(addresses::list(&ec2, &Params::new()).unwrap().is_empty());
    let written: Vec<String> = bed
        .host
        .ledger()
        .iter()
        .map(|it| it["op"].to_string())
        .collect();
    assert_eq!(written.first().map(String::as_str), Some("\"declare\""));
    assert_eq!(written.last().map(String::as_str), Some("\"settle\""));
}
