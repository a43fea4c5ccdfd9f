//! What a whole file of each published provider must have. The facts are those of the published catalog.

use std::collections::BTreeSet;

use dstack_backend_types::CatalogItem;

/// What a provider's file must have.
struct Rules {
    provider: &'static str,
    /// Accelerators that must be there.
    gpus: &'static [&'static str],
    /// Whether no others may be there.
    is_gpus_exact: bool,
    /// Models that must be there with each of these sizes, in GiB.
    sizes: &'static [(&'static str, &'static [f64])],
    /// A type of machine and how many locations must have it.
    everywhere: Option<(&'static str, usize)>,
    /// Locations that must be there.
    locations: &'static [&'static str],
    spot: Spot,
}

/// Whether there are rows that may be taken away at any time.
#[derive(PartialEq)]
enum Spot {
    Both,
    None,
    Any,
}

const ANYTHING: Rules = Rules {
    provider: "",
    gpus: &[],
    is_gpus_exact: false,
    sizes: &[],
    everywhere: None,
    locations: &[],
    spot: Spot::Any,
};

const A100: (&str, &[f64]) = ("A100", &[40.0, 80.0]);

const RULES: [Rules; 9] = [
    Rules {
        provider: "aws",
        gpus: &[
            "H100",
            "A100",
            "A10G",
            "T4",
            "L40S",
            "RTXPRO4500",
            "RTXPRO6000",
            "L4",
        ],
        everywhere: Some(("m5.large", 31)),
        locations: &["us-gov-west-1", "us-west-2-lax-1"],
        spot: Spot::Both,
        ..ANYTHING
    },
    Rules {
        provider: "azure",
        gpus: &["A100", "A10", "H100NVL", "H200", "T4", "V100"],
        is_gpus_exact: true,
        sizes: &[A100],
        everywhere: Some(("Standard_D2s_v3", 55)),
        ..ANYTHING
    },
    Rules {
        provider: "gcp",
        gpus: &[
            "B200",
            "H100",
            "A100",
            "L4",
            "RTXPRO6000",
            "T4",
            "V100",
            "P100",
        ],
        sizes: &[A100],
        everywhere: Some(("e2-highcpu-2", 118)),
        spot: Spot::Both,
        ..ANYTHING
    },
    Rules {
        provider: "verda",
        locations: &["FIN-01", "FIN-02"],
        spot: Spot::Both,
        ..ANYTHING
    },
    Rules {
        provider: "lambdalabs",
        gpus: &["A10", "A100", "H100"],
        spot: Spot::None,
        ..ANYTHING
    },
    Rules {
        provider: "nebius",
        gpus: &["H100"],
        spot: Spot::Both,
        ..ANYTHING
    },
    Rules {
        provider: "oci",
        gpus: &["P100", "V100", "A10", "A100"],
        ..ANYTHING
    },
    Rules {
        provider: "runpod",
        ..ANYTHING
    },
    Rules {
        provider: "cloudrift",
        gpus: &["RTX4090", "RTX5090"],
        ..ANYTHING
    },
];

/// What a file lacks, or has too much.
pub(super) fn missing(provider: &str, items: &[CatalogItem]) -> Vec<String> {
    let mut defects = special(provider, items);
    let Some(rules) = RULES.iter().find(|rules| rules.provider == provider) else {
        return defects;
    };
    let has: BTreeSet<&str> = items
        .iter()
        .filter_map(|item| item.gpu_name.as_deref())
        .collect();
    for gpu in rules.gpus.iter().filter(|gpu| !has.contains(**gpu)) {
        defects.push(format!("no row has {gpu}"));
    }
    for gpu in has
        .iter()
        .filter(|gpu| rules.is_gpus_exact && !rules.gpus.contains(gpu))
    {
        defects.push(format!("{gpu} is not expected"));
    }
    for (gpu, sizes) in rules.sizes {
        for size in *sizes {
            let is_it = |item: &CatalogItem| {
                item.gpu_name.as_deref() == Some(gpu) && item.gpu_memory == Some(*size)
            };
            if !items.iter().any(is_it) {
                defects.push(format!("no row has {gpu} with {size} GiB"));
            }
        }
    }
    if let Some((name, count)) = rules.everywhere {
        let places: BTreeSet<&str> = items
            .iter()
            .filter(|item| item.instance_name == name)
            .map(|item| item.location.as_str())
            .collect();
        if places.len() < count {
            let found = places.len();
            defects.push(format!(
                "{name} is in {found} locations, expected are {count}"
            ));
        }
    }
    for location in rules.locations {
        if !items.iter().any(|item| item.location == *location) {
            defects.push(format!("no row is in {location}"));
        }
    }
    let (spot, regular): (Vec<_>, Vec<_>) = items.iter().partition(|item| item.spot);
    if rules.spot == Spot::Both && (spot.is_empty() || regular.is_empty()) {
        defects.push("spot or on-demand rows are missing".to_owned());
    }
    if rules.spot == Spot::None && !spot.is_empty() {
        defects.push("spot rows are not expected".to_owned());
    }
    defects
}

/// Rules that only one provider has.
fn special(provider: &str, items: &[CatalogItem]) -> Vec<String> {
    let has_flag = |item: &CatalogItem, flag: &str| item.flags.iter().any(|one| one == flag);
    let mut defects = Vec::new();
    let mut must = |is_so: bool, text: &str| {
        if !is_so {
            defects.push(text.to_owned());
        }
    };
    match provider {
        "oci" => {
            must(
                items
                    .iter()
                    .all(|item| item.spot == has_flag(item, "oci-spot")),
                "spot rows and rows with oci-spot are not the same",
            );
            for family in ["VM.Standard", "BM.Standard", "VM.GPU", "BM.GPU"] {
                must(
                    items
                        .iter()
                        .any(|item| item.instance_name.starts_with(family)),
                    &format!("no row is of {family}"),
                );
            }
        }
        "nebius" => {
            let is_8x_h100 = |item: &&CatalogItem| {
                item.gpu_name.as_deref() == Some("H100")
                    && item.gpu_count == 8
                    && item.location == "eu-north1"
            };
            for fabric in ["fabric-2", "fabric-3", "fabric-4", "fabric-6"] {
                let has_it = |item: &CatalogItem| {
                    let fabrics = item.provider_data.get("fabrics");
                    let fabrics = fabrics.and_then(serde_json::Value::as_array);
                    fabrics.is_some_and(|all| all.iter().any(|one| one == fabric))
                };
                must(
                    items.iter().filter(is_8x_h100).all(has_it)
                        && items.iter().any(|item| is_8x_h100(&item)),
                    &format!("8 H100 in eu-north1 are not in {fabric}"),
                );
            }
            must(items.iter().any(|item| item.gpu_count == 0), "no CPU rows");
        }
        "runpod" => {
            let cpus = items.iter().filter(|item| item.gpu_count == 0);
            must(
                cpus.clone().all(|item| {
                    has_flag(item, "runpod-cpu") && !item.spot && item.location.contains('-')
                }),
                "CPU rows are flagged runpod-cpu, never spot, in a data center",
            );
        }
        "cloudrift" => {
            for count in [1, 2] {
                must(
                    items.iter().any(|item| item.gpu_count == count),
                    &format!("no row has {count} accelerators"),
                );
            }
        }
        _ => {}
    }
    defects
}
