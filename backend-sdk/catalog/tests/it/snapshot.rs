//! What the program carries.

use dstack_backend_catalog::{Snapshot, SnapshotAbout};

use crate::support::snapshot;

#[test]
fn the_snapshot_has_every_row_with_its_date_and_origin() {
    let about: SnapshotAbout = serde_json::from_str(include_str!("../../data/about.json")).unwrap();
    assert_eq!(Snapshot::embedded().about(), &about);
    let status = snapshot().status();
    let rows: Vec<(&str, usize)> = status
        .iter()
        .map(|one| (one.provider.as_str(), one.rows))
        .collect();
    assert_eq!(
        rows,
        [
            ("aws", 1762),
            ("azure", 1067),
            ("gcp", 5292),
            ("lambdalabs", 408),
            ("nebius", 69),
            ("oci", 69),
            ("runpod", 48),
            ("verda", 55),
        ]
    );
    for one in status {
        assert_eq!(one.bad_rows, 0);
        assert!(one.as_of.unwrap().starts_with("202"));
    }
}
