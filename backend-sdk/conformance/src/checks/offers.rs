//! Offers: sane, in the units of this product, and those that were asked for.

use std::collections::BTreeSet;

use dstack_backend_types::{
    InstanceOfferWithAvailability, Requirements, ResourcesSpec, gpus, matching,
};
use serde_json::{Value, from_value, json};

use super::{Check, Stop, Verdict};
use crate::calls::Caller;
use crate::cx::{Cx, ensure, fail, show_error};

pub(super) const CHECKS: &[Check] = &[
    Check {
        id: "offers.sane",
        title: "offers have a name, a region, a price and a machine",
        why: "the scheduler compares and rents by them",
        needs: None,
        run: sane,
    },
    Check {
        id: "offers.normalised",
        title: "memory is in MiB and GPUs have their usual names",
        why: "`gpu: H100:80GB` must find the machine whatever the provider calls it",
        needs: None,
        run: normalised,
    },
    Check {
        id: "offers.requirements",
        title: "only offers that fit the requirements",
        why: "what does not fit is tried, paid for and fails",
        needs: None,
        run: requirements,
    },
    Check {
        id: "offers.order",
        title: "offers come cheapest first",
        why: "the server merges the lists of all backends by price and keeps each one's order",
        needs: None,
        run: order,
    },
    Check {
        id: "offers.chunks",
        title: "parts have at most 500 offers, and no offer comes twice",
        why: "large lists are read while they arrive; a part is held in memory as a whole",
        needs: None,
        run: chunks,
    },
];

fn name(offer: &InstanceOfferWithAvailability) -> String {
    format!("{} in {:?}", offer.instance.name, offer.region)
}

fn some_offers(cx: &Cx<'_>) -> Result<(Caller, Vec<InstanceOfferWithAvailability>), Stop> {
    let caller = cx.open()?;
    let offers = cx.all_offers(&caller)?;
    ensure(
        !offers.is_empty(),
        "at least one offer when nothing is asked for",
        || "none".to_owned(),
        "let the fake provider have machines; a filter may drop them all",
    )?;
    Ok((caller, offers))
}

fn sane(cx: &Cx<'_>) -> Verdict {
    let (_, offers) = some_offers(cx)?;
    for offer in &offers {
        let resources = &offer.instance.resources;
        let rules = [
            (
                offer.backend.as_str() == cx.plan.manifest.name,
                "`backend` the manifest's name",
                offer.backend.to_string(),
            ),
            (
                !offer.instance.name.trim().is_empty(),
                "a name of the instance type",
                String::new(),
            ),
            (
                offer.price.is_finite() && offer.price >= 0.0,
                "a price in US dollars an hour, 0 or more",
                offer.price.to_string(),
            ),
            (
                offer.price < 10_000.0,
                "a price an hour, not a month or in cents",
                offer.price.to_string(),
            ),
            (resources.cpus > 0, "CPUs", resources.cpus.to_string()),
            (
                resources.memory_mib > 0,
                "memory",
                resources.memory_mib.to_string(),
            ),
            (
                offer.blocks >= 1 && offer.total_blocks >= offer.blocks,
                "blocks of 1 or more, not more than all",
                format!("{}/{}", offer.blocks, offer.total_blocks),
            ),
            (
                offer
                    .availability_zones
                    .as_ref()
                    .is_none_or(|zones| !zones.is_empty()),
                "zones to choose from, or null if they do not matter",
                "an empty list".to_owned(),
            ),
        ];
        for (holds, expected, seen) in rules {
            ensure(
                holds,
                expected,
                || format!("{seen} of {}", name(offer)),
                "correct how the provider's answer becomes an offer",
            )?;
        }
    }
    Ok(())
}

fn normalised(cx: &Cx<'_>) -> Verdict {
    const REMEDY: &str =
        "GiB times 1024 is MiB; `types::gpus` has the names and sizes of all known models";
    let (_, offers) = some_offers(cx)?;
    for offer in &offers {
        let resources = &offer.instance.resources;
        ensure(
            (256..=64 << 20).contains(&resources.memory_mib),
            "memory in MiB",
            || format!("{} of {}", resources.memory_mib, name(offer)),
            REMEDY,
        )?;
        ensure(
            resources.disk.size_mib == 0 || resources.disk.size_mib >= 1024,
            "disk in MiB, 0 if unknown or chosen at creation",
            || format!("{} of {}", resources.disk.size_mib, name(offer)),
            REMEDY,
        )?;
        let Some(first) = resources.gpus.first() else {
            continue;
        };
        ensure(
            resources.gpus.iter().all(|gpu| gpu == first),
            "GPUs of one machine all alike",
            || format!("different ones in {}", name(offer)),
            "describe each GPU by the same model and memory",
        )?;
        ensure(
            gpus::is_tpu(&first.name) || (1024..=4 << 20).contains(&first.memory_mib),
            "GPU memory in MiB, of one GPU",
            || format!("{} of {} in {}", first.memory_mib, first.name, name(offer)),
            REMEDY,
        )?;
        gpu_is_known(offer, &first.name, first.memory_mib)?;
    }
    Ok(())
}

fn gpu_is_known(offer: &InstanceOfferWithAvailability, model: &str, memory_mib: u64) -> Verdict {
    let usual = gpus::nvidia_model(model);
    let is_noisy = usual != model && gpus::find(&usual).is_some() && gpus::find(model).is_none();
    ensure(
        !is_noisy && !model.trim().is_empty(),
        "the model's usual name",
        || format!("{model:?} in {}; it is known as {usual:?}", name(offer)),
        "`types::gpus::nvidia_model` and its siblings make the usual name of what a vendor's tool prints",
    )?;
    let Some(known) = gpus::find(model) else {
        return Ok(());
    };
    if gpus::is_tpu(model) || known.memory_gib.is_empty() {
        return Ok(());
    }
    ensure(
        known
            .memory_gib
            .iter()
            .any(|gib| u64::from(*gib) * 1024 == memory_mib),
        &format!("a nominal memory of {model}: {:?} GiB", known.memory_gib),
        || format!("{memory_mib} MiB in {}", name(offer)),
        "round what the provider reports to the model's nominal size: `24GB..` must find a card that reports 22.5",
    )
}

fn requirements(cx: &Cx<'_>) -> Verdict {
    let (caller, offers) = some_offers(cx)?;
    let mut prices: Vec<f64> = offers.iter().map(|offer| offer.price).collect();
    prices.sort_by(f64::total_cmp);
    let middle = prices.get(prices.len() / 2).copied().unwrap_or_default();
    let largest = offers
        .iter()
        .map(|offer| offer.instance.resources.cpus)
        .max()
        .unwrap_or(1);
    let model = offers
        .iter()
        .find_map(|offer| offer.instance.resources.gpus.first())
        .map(|gpu| gpu.name.clone());
    let base = json!({"cpu": "1..", "memory": "0GB..", "disk": null});
    let with = |key: &str, value: Value| {
        let mut resources = base.clone();
        if let Some(object) = resources.as_object_mut() {
            object.insert(key.to_owned(), value);
        }
        json!({"resources": resources})
    };
    let mut asked = vec![
        ("no GPU", with("gpu", json!(0))),
        ("a GPU", with("gpu", json!({"count": "1.."}))),
        ("the most CPUs", with("cpu", json!(format!("{largest}..")))),
        ("more CPUs than there are", with("cpu", json!("100000.."))),
        ("little memory", with("memory", json!("..16GB"))),
        (
            "half the price",
            json!({"resources": base, "max_price": middle}),
        ),
        ("spot only", json!({"resources": base, "spot": true})),
        ("on-demand only", json!({"resources": base, "spot": false})),
    ];
    if let Some(model) = model {
        asked.push((
            "one GPU model",
            with("gpu", json!({"name": [model], "count": "1.."})),
        ));
    }
    for (what, asked) in asked {
        let requirements: Requirements = from_value(asked)
            .map_err(|error| Stop::Skip(format!("the suite's own requirements: {error}")))?;
        let listed = cx.list(&caller, requirements.clone()).map_err(|error| {
            fail(
                format!("offers, or an empty list, for {what}"),
                show_error(&error),
                "an empty list is no error",
            )
        })?;
        let wrong = listed
            .offers
            .iter()
            .find(|offer| !matching::matches_without_disk(offer, &requirements));
        if let Some(wrong) = wrong {
            return Err(fail(
                format!("only offers that fit ({what})"),
                format!("{} for {} an hour", name(wrong), wrong.price),
                "filter by `matching::matches`, or use `AllOffersCache`; the key of a cache holds all that was asked for",
            ));
        }
        let fitting = offers
            .iter()
            .filter(|offer| matching::matches_without_disk(offer, &requirements))
            .count();
        ensure(
            fitting == 0 || !listed.offers.is_empty(),
            &format!("some of the {fitting} offers that fit ({what})"),
            || "none".to_owned(),
            "the filter drops what fits",
        )?;
    }
    Ok(())
}

fn order(cx: &Cx<'_>) -> Verdict {
    let (_, offers) = some_offers(cx)?;
    for pair in offers.windows(2) {
        let [a, b] = pair else { continue };
        ensure(
            a.price <= b.price,
            "a price not below the one before",
            || format!("{} ({}) before {} ({})", name(a), a.price, name(b), b.price),
            "sort by price; if the provider ranks in a better way, `.without(\"offers.order\", \"…\")`",
        )?;
    }
    Ok(())
}

fn chunks(cx: &Cx<'_>) -> Verdict {
    let caller = cx.open()?;
    let listing = cx
        .list(&caller, Requirements::of(ResourcesSpec::unconstrained()))
        .map_err(|error| Stop::Skip(format!("no offers: {}", error.message)))?;
    let (_, emitted) = listing.parts.split_last().unwrap_or((&0, &[]));
    ensure(
        emitted.iter().all(|size| *size <= 500),
        "parts of at most 500 offers",
        || format!("parts of {emitted:?}"),
        "emit each 500 offers; the reply is the last part",
    )?;
    let mut seen = BTreeSet::new();
    for offer in &listing.offers {
        let identity = serde_json::to_string(offer).unwrap_or_default();
        ensure(
            seen.insert(identity),
            "each offer once",
            || format!("{} twice", name(offer)),
            "what was emitted is not in the reply again",
        )?;
    }
    Ok(())
}
