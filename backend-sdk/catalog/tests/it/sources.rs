//! Files and servers, whole and broken.

use std::path::Path;
use std::sync::Arc;

use dstack_backend_catalog::{Catalog, CatalogConfig, CatalogError, Source, publish, write_csv};
use dstack_backend_types::CatalogItem;
use dstack_backend_types::services::CatalogQuery;

use crate::support::{BASE, FakeWeb, at, folder, rows};

fn items(price: f64) -> Vec<CatalogItem> {
    let item = rows().remove(0).item;
    vec![CatalogItem { price, ..item }]
}

/// The price of the only row.
fn price(catalog: &Catalog, provider: &str, second: i64) -> Result<f64, CatalogError> {
    let query = CatalogQuery {
        provider: provider.to_owned(),
        ..CatalogQuery::default()
    };
    Ok(catalog.select(&query, at(second))?.items[0].price)
}

struct World {
    web: Arc<FakeWeb>,
    published: tempfile::TempDir,
    copies: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let published = tempfile::tempdir().unwrap();
        let web = Arc::new(FakeWeb::default());
        *web.root.lock().unwrap() = published.path().to_owned();
        Self {
            web,
            published,
            copies: tempfile::tempdir().unwrap(),
        }
    }

    fn put(&self, version: &str, price: f64) {
        publish(self.published.path(), "acme", version, &items(price)).unwrap();
    }

    fn catalog(&self) -> Catalog {
        self.catalog_of(vec![Source::parse(&format!("{BASE}/")).unwrap()])
    }

    fn catalog_of(&self, sources: Vec<Source>) -> Catalog {
        let config = CatalogConfig {
            sources,
            copies: Some(self.copies.path().to_owned()),
            ..CatalogConfig::default()
        };
        Catalog::new(config, Arc::clone(&self.web) as _)
    }

    fn fail(&self, status: u16) {
        *self.web.status.lock().unwrap() = status;
    }

    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.web.asked.lock().unwrap());
        asked.retain(|path| path.starts_with("acme/"));
        asked
    }
}

#[test]
fn an_unchanged_version_is_not_downloaded_again() {
    let world = World::new();
    world.put("20260101-1", 1.0);
    let catalog = world.catalog();
    assert_eq!(price(&catalog, "acme", 0).unwrap(), 1.0);
    assert_eq!(
        world.asked(),
        [
            "acme/version",
            "acme/20260101-1/catalog.zip",
            "acme/20260101-1/catalog.zip.sha256"
        ]
    );
    assert_eq!(price(&catalog, "acme", 1).unwrap(), 1.0);
    assert!(catalog.refresh(at(10), true).updated.is_empty());
    assert!(world.asked().is_empty(), "asked again before its time");
    assert_eq!(catalog.refresh(at(901), true).unchanged, ["acme"]);
    assert_eq!(world.asked(), ["acme/version"]);
    world.put("20260101-2", 2.0);
    assert_eq!(price(&catalog, "acme", 902).unwrap(), 1.0);
    assert_eq!(catalog.refresh(at(1900), true).updated, ["acme"]);
    assert_eq!(price(&catalog, "acme", 1901).unwrap(), 2.0);
    let status = catalog.status();
    let one = status.iter().find(|one| one.provider == "acme").unwrap();
    assert_eq!(one.version.as_deref(), Some("20260101-2"));
    assert_eq!(one.fetched_at, Some(at(1900)));
    assert_eq!(one.next_check_at, Some(at(2800)));
}

#[test]
fn a_start_without_network_uses_the_last_good_copy() {
    let world = World::new();
    world.put("20260101-1", 1.0);
    assert_eq!(price(&world.catalog(), "acme", 0).unwrap(), 1.0);
    world.fail(1);
    let offline = world.catalog();
    assert_eq!(price(&offline, "acme", 100).unwrap(), 1.0);
    let done = offline.refresh(at(101), false);
    let (_, why) = done.failed.iter().find(|(name, _)| name == "acme").unwrap();
    assert!(why.contains("connection refused"), "{why}");
    assert_eq!(price(&offline, "acme", 102).unwrap(), 1.0);
    let status = offline.status();
    let one = status.iter().find(|one| one.provider == "acme").unwrap();
    assert_eq!(one.fetched_at, Some(at(0)), "the age is that of the copy");
    assert!(one.error.is_some());
    // The pauses grow while it fails, and end when it answers.
    assert_eq!(one.next_check_at, Some(at(131)));
    world.asked();
    offline.refresh(at(120), true);
    assert!(world.asked().is_empty());
    offline.refresh(at(131), true);
    assert_eq!(world.asked(), ["acme/version"]);
    offline.refresh(at(190), true);
    assert!(world.asked().is_empty());
    world.fail(0);
    world.put("20260101-2", 2.0);
    assert!(
        offline
            .refresh(at(192), true)
            .updated
            .contains(&"acme".to_owned())
    );
    assert_eq!(price(&offline, "acme", 193).unwrap(), 2.0);
}

#[test]
fn a_broken_copy_is_not_used() {
    let world = World::new();
    world.put("20260101-1", 1.0);
    price(&world.catalog(), "acme", 0).unwrap();
    let folder = std::fs::read_dir(world.copies.path())
        .unwrap()
        .next()
        .unwrap();
    let zip = std::fs::read_dir(folder.unwrap().path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|end| end == "zip"))
        .unwrap();
    let mut bytes = std::fs::read(&zip).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&zip, bytes).unwrap();
    world.fail(1);
    assert!(price(&world.catalog(), "acme", 1).is_err());
    world.fail(0);
    assert_eq!(price(&world.catalog(), "acme", 2).unwrap(), 1.0);
}

#[test]
fn another_archive_than_the_published_one_is_refused() {
    let world = World::new();
    world.put("20260101-1", 1.0);
    let catalog = world.catalog();
    price(&catalog, "acme", 0).unwrap();
    world.put("20260101-2", 2.0);
    let sum = world
        .published
        .path()
        .join("acme/20260101-2/catalog.zip.sha256");
    std::fs::write(&sum, "0000  catalog.zip\n").unwrap();
    let done = catalog.refresh(at(1000), false);
    let (_, why) = done.failed.iter().find(|(name, _)| name == "acme").unwrap();
    assert!(why.contains("checksum"), "{why}");
    assert_eq!(price(&catalog, "acme", 1001).unwrap(), 1.0);
    // Publishers without checksums are trusted: the archive has its own.
    std::fs::remove_file(sum).unwrap();
    catalog.refresh(at(1002), false);
    assert_eq!(price(&catalog, "acme", 1003).unwrap(), 2.0);
}

#[test]
fn answers_that_are_no_catalog_change_nothing() {
    let world = World::new();
    world.put("20260101-1", 1.0);
    let catalog = world.catalog();
    price(&catalog, "acme", 0).unwrap();
    let place = world.published.path().join("acme");
    let mut second = 1000;
    for (version, archive) in [
        ("../../etc", None),
        ("", None),
        ("<html>not found</html>", None),
        ("20260101-9", Some("no zip at all")),
        ("20260101-8", None),
    ] {
        std::fs::write(place.join("version"), version).unwrap();
        if let Some(text) = archive {
            std::fs::create_dir_all(place.join(version)).unwrap();
            std::fs::write(place.join(version).join("catalog.zip"), text).unwrap();
        }
        second += 5000;
        let done = catalog.refresh(at(second), false);
        assert!(
            done.failed.iter().any(|(name, _)| name == "acme"),
            "{version}"
        );
        assert_eq!(price(&catalog, "acme", second).unwrap(), 1.0, "{version}");
    }
    world.fail(500);
    assert!(!catalog.refresh(at(second + 5000), false).failed.is_empty());
    assert_eq!(price(&catalog, "acme", second + 1).unwrap(), 1.0);
}

#[test]
fn the_first_source_that_has_a_provider_is_used() {
    let world = World::new();
    world.put("20260101-1", 1.0);
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |folder: &Path, price: f64| {
        std::fs::write(folder.join("acme.csv"), write_csv(&items(price))).unwrap();
    };
    write(two.path(), 3.0);
    let sources = || {
        vec![
            folder(one.path()),
            Source::parse(BASE).unwrap(),
            folder(two.path()),
        ]
    };
    let catalog = world.catalog_of(sources());
    // What is there is used at once; what is published comes in the background.
    assert_eq!(price(&catalog, "acme", 0).unwrap(), 3.0);
    catalog.refresh(at(1), true);
    assert_eq!(price(&catalog, "acme", 2).unwrap(), 1.0);
    write(one.path(), 4.0);
    assert_eq!(price(&catalog, "acme", 3).unwrap(), 4.0);
    std::fs::write(one.path().join("acme.csv"), "no,catalog\n1,2\n").unwrap();
    let error = price(&catalog, "acme", 4).unwrap_err();
    assert!(matches!(error, CatalogError::Source { .. }));
    assert!(matches!(
        price(&catalog, "../acme", 5),
        Err(CatalogError::Name(_))
    ));
}

#[test]
fn a_pinned_version_is_never_left() {
    let world = World::new();
    world.put("20260101-1", 1.0);
    world.put("20260101-2", 2.0);
    let config = CatalogConfig {
        sources: vec![Source::parse(BASE).unwrap()],
        copies: Some(world.copies.path().to_owned()),
        version: Some("20260101-1".to_owned()),
        has_snapshot: false,
    };
    let catalog = Catalog::new(config.clone(), Arc::clone(&world.web) as _);
    assert_eq!(price(&catalog, "acme", 0).unwrap(), 1.0);
    assert_eq!(catalog.refresh(at(5000), false).unchanged, ["acme"]);
    // A copy of another version is no answer.
    let other = CatalogConfig {
        version: Some("20260101-2".to_owned()),
        ..config
    };
    world.fail(1);
    assert!(price(&Catalog::new(other, Arc::clone(&world.web) as _), "acme", 1).is_err());
}

#[test]
fn a_folder_may_be_in_the_published_form() {
    let world = World::new();
    world.put("20260101-1", 1.0);
    for source in [
        folder(world.published.path()),
        Source::parse(&format!("file://{}", world.published.path().display())).unwrap(),
    ] {
        let catalog = world.catalog_of(vec![source]);
        assert_eq!(price(&catalog, "acme", 0).unwrap(), 1.0);
    }
    let latest = world.published.path().join("acme/latest/catalog.zip");
    let newest = world.published.path().join("acme/20260101-1/catalog.zip");
    assert_eq!(
        std::fs::read(latest).unwrap(),
        std::fs::read(newest).unwrap()
    );
}

#[test]
fn sources_are_read_from_words() {
    let list =
        Source::parse_list("/prices, https://prices.example/v3/ file:///srv/prices").unwrap();
    let words: Vec<String> = list.iter().map(Source::to_string).collect();
    assert_eq!(
        words,
        ["/prices", "https://prices.example/v3", "file:///srv/prices"]
    );
    assert!(Source::parse("ftp://prices.example").is_err());
    assert!(Source::parse("").is_err());
}
