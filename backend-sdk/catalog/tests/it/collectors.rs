//! Collectors on answers in the shapes that their providers document.

use std::sync::Mutex;

use dstack_backend_catalog::collect::{CollectError, Surroundings, collect, names};
use dstack_backend_catalog::{Reply, Request, Web, WebError};
use dstack_backend_types::{AcceleratorVendor, CatalogItem, CpuArchitecture};
use serde_json::{Value, json};

/// Answers by how the address begins and what the request says, the first that fits; everything that was asked.
struct Recorded {
    answers: Vec<(&'static str, &'static str, String)>,
    asked: Mutex<Vec<Request>>,
}

impl Recorded {
    fn new(answers: Vec<(&'static str, &'static str, Value)>) -> Self {
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let answers = answers.into_iter();
        Self {
            answers: answers
                .map(|(start, part, value)| (start, part, text(value)))
                .collect(),
            asked: Mutex::default(),
        }
    }

    fn collect(
        &self,
        provider: &str,
        vars: &[(&str, &str)],
    ) -> Result<Vec<CatalogItem>, CollectError> {
        let vars = |name: &str| {
            let found = vars.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let around = Surroundings {
            web: self,
            vars: &vars,
        };
        collect(provider, &around, true)
    }
}

impl Web for Recorded {
    fn send(&self, request: &Request) -> Result<Reply, WebError> {
        self.asked.lock().unwrap().push(request.clone());
        let body = String::from_utf8(request.body.clone().unwrap_or_default()).unwrap();
        let found = self.answers.iter().find(|(start, part, _)| {
            request.url.starts_with(start) && (body.contains(part) || request.url.contains(part))
        });
        Ok(match found {
            Some((_, _, answer)) => Reply {
                status: 200,
                body: answer.clone().into_bytes(),
            },
            None => Reply {
                status: 404,
                body: b"no such thing".to_vec(),
            },
        })
    }
}

/// What of a row differs between providers.
fn lines(items: &[CatalogItem]) -> Vec<String> {
    let line = |item: &CatalogItem| {
        format!(
            "{} {} {} {}x{} {}{}{}",
            item.instance_name,
            item.location,
            item.price,
            item.cpu,
            item.memory,
            item.gpu_count,
            item.gpu_name
                .as_ref()
                .map_or_else(String::new, |name| format!(
                    "x{name}:{}",
                    item.gpu_memory.unwrap()
                )),
            if item.spot { " spot" } else { "" }
        )
    };
    items.iter().map(line).collect()
}

#[test]
fn lambda() {
    let of = |name: &str, gpu: &str, cents: u32, gpus: u32| {
        json!({"instance_type": {"name": name, "description": gpu, "gpu_description": gpu, "price_cents_per_hour": cents,
            "specs": {"vcpus": 30, "memory_gib": 200, "storage_gib": 1400, "gpus": gpus}},
            "regions_with_capacity_available": []})
    };
    let web = Recorded::new(vec![
        (
            "https://cloud.lambda.ai/api/v1/instance-types",
            "",
            json!({"data": {
                "gpu_1x_a10": of("gpu_1x_a10", "A10 (24 GB PCIe)", 75, 1),
                "gpu_1x_gh200": of("gpu_1x_gh200", "GH200 (96 GB)", 149, 1),
                "cpu_4x_general": of("cpu_4x_general", "N/A", 20, 0),
                "gpu_1x_new": of("gpu_1x_new", "X9000 (1024 GB)", 999, 1),
            }}),
        ),
        (
            "https://cloud.lambda.ai/api/v1/images",
            "",
            json!({"data": [
                {"id": "1", "region": {"name": "us-west-1", "description": "California"}},
                {"id": "2", "region": {"name": "us-east-1", "description": "Virginia"}},
                {"id": "3", "region": {"name": "us-west-1", "description": "California"}},
            ]}),
        ),
    ]);
    let items = web
        .collect("lambdalabs", &[("LAMBDA_API_KEY", "key-of-the-account")])
        .unwrap();
    assert_eq!(
        lines(&items),
        [
            "cpu_4x_general us-east-1 0.2 30x214.8 0",
            "cpu_4x_general us-west-1 0.2 30x214.8 0",
            "gpu_1x_a10 us-east-1 0.75 30x214.8 1xA10:24",
            "gpu_1x_a10 us-west-1 0.75 30x214.8 1xA10:24",
            "gpu_1x_gh200 us-east-1 1.49 30x214.8 1xGH200:96",
            "gpu_1x_gh200 us-west-1 1.49 30x214.8 1xGH200:96",
        ]
    );
    let chip = items.last().unwrap();
    assert_eq!(
        (chip.cpu_arch, chip.flags.as_slice()),
        (CpuArchitecture::Arm, &["lambda-arm".to_owned()][..])
    );
    let error = web.collect("lambdalabs", &[]).unwrap_err();
    assert!(error.to_string().contains("LAMBDA_API_KEY"), "{error}");
    let asked = web.asked.lock().unwrap();
    assert!(!format!("{asked:?}").contains("key-of-the-account"));
}

#[test]
fn verda() {
    let of = |name: &str, gpu: &str, count: u32, memory: u32| {
        json!({"id": "x", "instance_type": name, "price_per_hour": "1.20", "spot_price": "0.40", "description": gpu,
            "cpu": {"description": "6 CPU", "number_of_cores": 6},
            "gpu": {"description": gpu, "number_of_gpus": count},
            "memory": {"description": "23GB RAM", "size_in_gigabytes": 23},
            "gpu_memory": {"description": "", "size_in_gigabytes": memory},
            "storage": {"description": "dynamic"}})
    };
    let web = Recorded::new(vec![
        (
            "https://api.verda.com/v1/oauth2/token",
            "client_credentials",
            json!({"access_token": "t", "token_type": "Bearer", "expires_in": 3600}),
        ),
        (
            "https://api.verda.com/v1/instance-types",
            "",
            json!([
                of("2V100.10V", "2x NVIDIA Tesla V100 16GB", 2, 32),
                of("CPU.4V.16G", "", 0, 0),
                of("1MI300X", "1x AMD MI300X 192GB", 1, 192),
            ]),
        ),
        (
            "https://api.verda.com/v1/locations",
            "",
            json!([{"code": "FIN-01", "name": "Finland 1", "country_code": "FI"}]),
        ),
    ]);
    let vars = [("VERDA_CLIENT_ID", "id"), ("VERDA_CLIENT_SECRET", "secret")];
    assert_eq!(
        lines(&web.collect("verda", &vars).unwrap()),
        [
            "2V100.10V FIN-01 0.4 6x23 2xV100:16 spot",
            "CPU.4V.16G FIN-01 0.4 6x23 0 spot",
            "2V100.10V FIN-01 1.2 6x23 2xV100:16",
            "CPU.4V.16G FIN-01 1.2 6x23 0",
        ]
    );
}

#[test]
fn vultr() {
    let web = Recorded::new(vec![
        (
            "https://api.vultr.com/v2/plans?",
            "cursor=two",
            json!({"plans": [
            {"id": "vcg-a16-6c-64g-16vram", "vcpu_count": 6, "ram": 65536, "disk": 350, "disk_count": 1, "bandwidth": 1,
             "monthly_cost": 344, "hourly_cost": 0.471, "type": "vcg", "locations": ["ewr", "lax"],
             "gpu_vram_gb": 16, "gpu_type": "NVIDIA_A16"},
            {"id": "vcg-a16-part", "vcpu_count": 1, "ram": 4096, "disk": 20, "monthly_cost": 20, "locations": ["ewr"],
             "gpu_vram_gb": 2, "gpu_type": "NVIDIA_A16"},
        ], "meta": {"total": 2, "links": {"next": "", "prev": ""}}}),
        ),
        (
            "https://api.vultr.com/v2/plans?",
            "",
            json!({"plans": [
            {"id": "vc2-1c-1gb", "vcpu_count": 1, "ram": 1024, "disk": 25, "disk_count": 1, "bandwidth": 1024,
             "monthly_cost": 5, "hourly_cost": 0.007, "type": "vc2", "locations": ["ewr"]},
        ], "meta": {"total": 1, "links": {"next": "two", "prev": ""}}}),
        ),
        (
            "https://api.vultr.com/v2/plans-metal",
            "",
            json!({"plans_metal": [
            {"id": "vbm-8mi300x", "cpu_count": 128, "cpu_threads": 256, "cpu_model": "EPYC", "ram": 2097152, "disk": 3576,
             "disk_count": 2, "monthly_cost": 1460, "type": "SSD", "locations": ["ord"],
             "gpu_type": "AMD_MI300X", "gpu_vram_gb": 1536},
        ], "meta": {"total": 1, "links": {"next": "", "prev": ""}}}),
        ),
    ]);
    let items = web.collect("vultr", &[]).unwrap();
    assert_eq!(
        lines(&items),
        [
            "vc2-1c-1gb ewr 0.007 1x1 0",
            "vcg-a16-6c-64g-16vram ewr 0.471 6x64 1xA16:16",
            "vcg-a16-6c-64g-16vram lax 0.471 6x64 1xA16:16",
            "vbm-8mi300x ord 2 256x2048 8xMI300X:192",
        ]
    );
    assert_eq!(items[3].gpu_vendor, Some(AcceleratorVendor::Amd));
    assert_eq!(items[3].disk_size, Some(7152.0));
}

#[test]
fn runpod() {
    let price = |one: f64, bid: Value| json!({"uninterruptablePrice": one, "minimumBidPrice": bid, "minVcpu": 8, "minMemory": 117});
    let web = Recorded::new(vec![
        (
            "https://api.runpod.io/graphql",
            "dataCenters",
            json!({"data": {
                "gpuTypes": [
                    {"id": "NVIDIA A100 80GB PCIe", "manufacturer": "Nvidia", "memoryInGb": 80, "maxGpuCount": 2},
                    {"id": "AMD Instinct MI300X OAM", "manufacturer": "AMD", "memoryInGb": 192, "maxGpuCount": 8},
                ],
                "dataCenters": [{"id": "EU-RO-1", "listed": true}, {"id": "OLD-1", "listed": false}],
            }}),
        ),
        (
            "https://api.runpod.io/graphql",
            "EU-RO-1",
            json!({"data": {"gpuTypes": [
                {"id": "NVIDIA A100 80GB PCIe", "n1": price(1.39, json!(0.82)), "n2": price(1.39, Value::Null),
                 "n3": price(1.39, Value::Null)},
                {"id": "AMD Instinct MI300X OAM", "n1": null, "n8": price(2.49, Value::Null)},
            ]}}),
        ),
    ]);
    assert_eq!(
        lines(&web.collect("runpod", &[]).unwrap()),
        [
            "NVIDIA A100 80GB PCIe EU-RO-1 0.82 8x117 1xA100:80 spot",
            "NVIDIA A100 80GB PCIe EU-RO-1 1.39 8x117 1xA100:80",
            "NVIDIA A100 80GB PCIe EU-RO-1 2.78 8x117 2xA100:80",
            "AMD Instinct MI300X OAM EU-RO-1 19.92 8x117 8xMI300X:192",
        ]
    );
    let refused = Recorded::new(vec![(
        "https://api.runpod.io/graphql",
        "",
        json!({"errors": [{"message": "Cannot query field"}]}),
    )]);
    let error = refused.collect("runpod", &[]).unwrap_err();
    assert!(error.to_string().contains("Cannot query field"), "{error}");
}

#[test]
fn aws() {
    let head = "\"FormatVersion\",\"v1.0\"\n\"Disclaimer\",\"x\"\n\"Publication Date\",\"2026-01-01\"\n\"Version\",\"1\"\n\"OfferCode\",\"AmazonEC2\"\n";
    let columns = "\"SKU\",\"TermType\",\"Unit\",\"PricePerUnit\",\"Currency\",\"Region Code\",\"Instance Type\",\"vCPU\",\"Memory\",\"Physical Processor\",\"Tenancy\",\"Operating System\",\"CapacityStatus\",\"Pre Installed S/W\",\"GPU\"\n";
    let row = |name: &str, price: &str, system: &str, processor: &str, gpu: &str| {
        format!(
            "\"S\",\"OnDemand\",\"Hrs\",\"{price}\",\"USD\",\"eu-west-1\",\"{name}\",\"4\",\"1,024 GiB\",\"{processor}\",\"Shared\",\"{system}\",\"Used\",\"NA\",\"{gpu}\"\n"
        )
    };
    let list = [
        head,
        columns,
        &row("m5.large", "0.1070000000", "Linux", "Intel Xeon", "NA"),
        &row("m5.large", "0.2070000000", "Windows", "Intel Xeon", "NA"),
        &row("m5.large", "0.0000000000", "Linux", "Intel Xeon", "NA"),
        &row("p4de.24xlarge", "40.9657000000", "Linux", "Intel Xeon", "8"),
        &row("g6f.large", "0.2000000000", "Linux", "AMD EPYC", "0.125"),
        &row("x1.32xlarge", "13.3000000000", "Linux", "Intel Xeon", "NA"),
        &row("t2.small", "0.0250000000", "Linux", "Intel Xeon", ""),
    ]
    .concat();
    let web = Recorded::new(vec![
        (
            "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/current/region_index.json",
            "",
            json!({"formatVersion": "v1.0", "regions": {"eu-west-1": {"regionCode": "eu-west-1",
                "currentVersionUrl": "/offers/v1.0/aws/AmazonEC2/20260101/eu-west-1/index.json"}}}),
        ),
        (
            "https://pricing.us-east-1.amazonaws.com/offers/v1.0/aws/AmazonEC2/20260101/eu-west-1/index.csv",
            "",
            json!(list),
        ),
    ]);
    assert_eq!(
        lines(&web.collect("aws", &[]).unwrap()),
        [
            "t2.small eu-west-1 0.025 4x1024 0",
            "m5.large eu-west-1 0.107 4x1024 0",
            "p4de.24xlarge eu-west-1 40.9657 4x1024 8xA100:80",
        ]
    );
}

#[test]
fn azure() {
    let sku = |name: &str, gpus: Option<&str>| {
        let mut capabilities = vec![
            json!({"name": "vCPUs", "value": "24"}),
            json!({"name": "MemoryGB", "value": "220"}),
            json!({"name": "CpuArchitectureType", "value": "x64"}),
        ];
        capabilities.extend(gpus.map(|count| json!({"name": "GPUs", "value": count})));
        json!({"resourceType": "virtualMachines", "name": name, "family": "f", "locations": ["eastus"], "capabilities": capabilities})
    };
    let price = |name: &str, product: &str, meter: &str, price: f64| {
        json!({"currencyCode": "USD", "retailPrice": price, "unitOfMeasure": "1 Hour", "armRegionName": "eastus",
            "armSkuName": name, "productName": product, "meterName": meter, "skuName": meter, "type": "Consumption"})
    };
    let web = Recorded::new(vec![
        (
            "https://login.microsoftonline.com/tenant/oauth2/v2.0/token",
            "client_secret=a%2Fb",
            json!({"access_token": "t"}),
        ),
        (
            "https://management.azure.com/subscriptions/sub/",
            "",
            json!({"value": [
                sku("Standard_D2s_v3", None), sku("Standard_NC24ads_A100_v4", Some("1")), sku("Standard_NC99_new", Some("1")),
                {"resourceType": "disks", "name": "Premium_LRS"},
            ]}),
        ),
        (
            "https://prices.azure.com/api/retail/prices?page=2",
            "",
            json!({"Items": [
            price("Standard_NC24ads_A100_v4", "NCads A100 v4 Series", "NC24ads A100 v4 Spot", 1.1),
        ], "NextPageLink": null}),
        ),
        (
            "https://prices.azure.com/api/retail/prices?$filter",
            "",
            json!({"Items": [
            price("Standard_D2s_v3", "Virtual Machines DSv3 Series", "D2s v3", 0.096),
            price("Standard_D2s_v3", "Virtual Machines DSv3 Series Windows", "D2s v3", 0.188),
            price("Standard_D2s_v3", "Virtual Machines DSv3 Series", "D2s v3 Low Priority", 0.01),
            price("Standard_D2s_v3", "Virtual Machines DSv3 Series", "D2s v3 Spot", 0.0),
            price("Standard_NC99_new", "NC", "NC99 new", 9.0),
        ], "NextPageLink": "https://prices.azure.com/api/retail/prices?page=2"}),
        ),
    ]);
    let vars = [
        ("AZURE_TENANT_ID", "tenant"),
        ("AZURE_CLIENT_ID", "client"),
        ("AZURE_CLIENT_SECRET", "a/b"),
        ("AZURE_SUBSCRIPTION_ID", "sub"),
    ];
    assert_eq!(
        lines(&web.collect("azure", &vars).unwrap()),
        [
            "Standard_D2s_v3 eastus 0.096 24x220 0",
            "Standard_NC24ads_A100_v4 eastus 1.1 24x220 1xA100:80 spot",
        ]
    );
}

#[test]
fn what_goes_wrong_is_named() {
    let nothing = Recorded::new(Vec::new());
    for provider in names() {
        let vars = [
            "LAMBDA_API_KEY",
            "VERDA_CLIENT_ID",
            "VERDA_CLIENT_SECRET",
            "AZURE_TENANT_ID",
            "AZURE_CLIENT_ID",
            "AZURE_CLIENT_SECRET",
            "AZURE_SUBSCRIPTION_ID",
        ]
        .map(|name| (name, "hidden-value"));
        let error = nothing.collect(provider, &vars).unwrap_err();
        assert!(
            matches!(error, CollectError::Status { status: 404, .. }),
            "{provider}"
        );
    }
    assert!(matches!(
        nothing.collect("acme", &[]),
        Err(CollectError::NoCollector(_))
    ));
    let shape = Recorded::new(vec![("https://api.vultr.com/", "", json!({"plans": 1}))]);
    let error = shape.collect("vultr", &[]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("https://api.vultr.com/v2/plans is not understood"),
        "{error}"
    );
    let empty = Recorded::new(vec![("https://api.vultr.com/", "", json!({"plans": []}))]);
    assert!(matches!(
        empty.collect("vultr", &[]),
        Err(CollectError::Nothing(_))
    ));
}
