use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use dstack_backend_types::methods::GetOffersRequest;
use dstack_backend_types::resources::{Memory, Range};
use dstack_backend_types::{BackendError, InstanceOfferWithAvailability, Requirements};
use serde_json::{Value, json};

use super::cache::Cache;
use super::{AllOffers, AllOffersCache, DiskPolicy, FilteredOffersCache};

fn offer(name: &str, cpus: u32, disk_mib: u64) -> InstanceOfferWithAvailability {
    serde_json::from_value(json!({
        "backend": "acme", "region": "r", "price": 1.0, "availability": "available",
        "instance": {"name": name, "resources": {"cpus": cpus, "memory_mib": 16384, "disk": {"size_mib": disk_mib}}},
    }))
    .unwrap()
}

fn request(resources: Value) -> GetOffersRequest {
    GetOffersRequest {
        requirements: serde_json::from_value(json!({ "resources": resources })).unwrap(),
        full_offers: false,
        unallocated_resources: false,
        image: None,
    }
}

#[derive(Default)]
struct Acme {
    fetches: AtomicUsize,
}

impl AllOffers for Acme {
    const DEPENDS_ON_UNALLOCATED: bool = true;

    fn all_offers(
        &self,
        request: &GetOffersRequest,
    ) -> Result<Vec<InstanceOfferWithAvailability>, BackendError> {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let cpus = if request.unallocated_resources { 2 } else { 8 };
        Ok(vec![
            offer("flexible", cpus, 0),
            offer("fixed-small", 8, 30_720),
            offer("dropped", 8, 0),
            offer("refused", 8, 0),
        ])
    }

    fn modify(
        &self,
        mut offer: InstanceOfferWithAvailability,
        _: &GetOffersRequest,
    ) -> Option<InstanceOfferWithAvailability> {
        offer.region = "changed".to_owned();
        (offer.instance.name != "dropped").then_some(offer)
    }

    fn disk(&self, offer: &InstanceOfferWithAvailability) -> DiskPolicy {
        if offer.instance.name.starts_with("fixed") {
            DiskPolicy::Fixed
        } else {
            DiskPolicy::Configurable(Range::between(Memory(50.0), Memory(500.0)))
        }
    }

    fn keep(&self, offer: &InstanceOfferWithAvailability, _: &Requirements) -> bool {
        offer.instance.name != "refused"
    }
}

#[test]
fn all_offers_are_fetched_once_then_changed_filtered_and_fitted() {
    let (acme, cache) = (Acme::default(), AllOffersCache::new());
    let found = |resources: Value| -> Vec<(String, u64)> {
        let reply = cache.get_offers(&acme, &request(resources)).unwrap();
        assert!(reply.offers.iter().all(|offer| offer.region == "changed"));
        reply
            .offers
            .into_iter()
            .map(|o| (o.instance.name, o.instance.resources.disk.size_mib))
            .collect()
    };
    assert_eq!(found(json!({})), [("flexible".to_owned(), 102_400)]);
    assert_eq!(
        found(json!({"disk": "20GB.."})),
        [
            ("flexible".to_owned(), 51_200),
            ("fixed-small".to_owned(), 30_720)
        ]
    );
    assert_eq!(found(json!({"cpu": "64.."})), []);
    assert_eq!(acme.fetches.load(Ordering::SeqCst), 1);

    let mut unallocated = request(json!({"cpu": "4.."}));
    unallocated.unallocated_resources = true;
    assert!(
        cache
            .get_offers(&acme, &unallocated)
            .unwrap()
            .offers
            .is_empty(),
        "its own list"
    );
    assert_eq!(acme.fetches.load(Ordering::SeqCst), 2);
    cache.clear();
    cache.get_offers(&acme, &request(json!({}))).unwrap();
    assert_eq!(acme.fetches.load(Ordering::SeqCst), 3);
}

#[test]
fn filtered_offers_are_kept_by_request_and_the_oldest_goes() {
    let cache = FilteredOffersCache::new();
    let fetches = AtomicUsize::new(0);
    let ask = |cpus: u32| {
        cache
            .get_offers(&request(json!({ "cpu": cpus })), || {
                fetches.fetch_add(1, Ordering::SeqCst);
                Ok(vec![offer("x", cpus, 0)])
            })
            .unwrap()
            .offers
    };
    for cpus in 1..=10 {
        assert_eq!(ask(cpus)[0].instance.resources.cpus, cpus);
    }
    ask(1);
    assert_eq!(fetches.load(Ordering::SeqCst), 10);
    ask(11); // 2 was used longest ago
    ask(1);
    assert_eq!(fetches.load(Ordering::SeqCst), 11);
    ask(2);
    assert_eq!(fetches.load(Ordering::SeqCst), 12);
}

#[test]
fn errors_are_not_kept() {
    let cache = FilteredOffersCache::new();
    let request = request(json!({}));
    let error = cache
        .get_offers(&request, || Err(BackendError::no_capacity("none")))
        .unwrap_err();
    assert_eq!(error.message, "none");
    assert_eq!(
        cache
            .get_offers(&request, || Ok(vec![offer("x", 1, 0)]))
            .unwrap()
            .offers
            .len(),
        1
    );
}

#[test]
fn old_answers_are_fetched_again() {
    let cache = Cache::with_ttl(1, Duration::ZERO);
    for cpus in 1..=2 {
        let offers = cache
            .get_or_fetch(&(), || Ok(vec![offer("x", cpus, 0)]))
            .unwrap();
        assert_eq!(offers[0].instance.resources.cpus, cpus);
    }
    assert_eq!(super::cache::TTL, Duration::from_secs(180));
}

#[test]
fn callers_at_once_share_one_fetch() {
    let cache = Arc::new(Cache::new(1));
    let fetches = Arc::new(AtomicUsize::new(0));
    let barrier = Arc::new(Barrier::new(8));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (cache, fetches, barrier) = (
                Arc::clone(&cache),
                Arc::clone(&fetches),
                Arc::clone(&barrier),
            );
            std::thread::spawn(move || {
                barrier.wait();
                cache
                    .get_or_fetch(&(), || {
                        fetches.fetch_add(1, Ordering::SeqCst);
                        Ok(vec![offer("x", 1, 0)])
                    })
                    .unwrap()
                    .len()
            })
        })
        .collect();
    assert!(
        threads
            .into_iter()
            .all(|thread| thread.join().unwrap() == 1)
    );
    assert_eq!(fetches.load(Ordering::SeqCst), 1);
}
