//! What is wrong with files.

use dstack_backend_catalog::{Coverage, check, write_csv, write_zip};
use dstack_backend_types::CatalogItem;

use crate::support::rows;

fn of(provider: &str) -> Vec<CatalogItem> {
    let own = rows().into_iter().filter(|one| one.provider == provider);
    own.map(|one| one.item).collect()
}

fn defects(provider: &str, items: &[CatalogItem], coverage: Coverage) -> Vec<String> {
    check(provider, write_csv(items).as_bytes(), coverage)
        .unwrap()
        .defects
}

#[test]
fn the_snapshots_rows_are_sound() {
    for provider in [
        "aws",
        "azure",
        "gcp",
        "lambdalabs",
        "nebius",
        "oci",
        "runpod",
        "verda",
    ] {
        assert_eq!(
            defects(provider, &of(provider), Coverage::Partial),
            [""; 0],
            "{provider}"
        );
    }
    let zip = write_zip("verda", &of("verda")).unwrap();
    let report = check("verda", &zip, Coverage::Whole).unwrap();
    assert_eq!((report.rows, report.defects.as_slice()), (55, &[][..]));
}

#[test]
fn rows_that_cannot_be_are_named() {
    let good = of("verda")
        .into_iter()
        .find(|item| item.gpu_count > 0)
        .unwrap();
    let broken = |change: &dyn Fn(&mut CatalogItem)| {
        let mut item = good.clone();
        change(&mut item);
        item
    };
    let items = [
        broken(&|item| item.price = 0.0),
        broken(&|item| item.memory = 0.0),
        broken(&|item| item.disk_size = Some(0.0)),
        broken(&|item| item.gpu_name = None),
        broken(&|item| item.gpu_count = 0),
    ];
    let found = defects("acme", &items, Coverage::Whole);
    assert_eq!(found.len(), 5, "{found:?}");
    let report = check("acme", b"instance_name,location,price,cpu,memory,gpu_count,spot\na,r,1,2,4,0,False\nb,r,x,2,4,0,False\n", Coverage::Whole);
    let report = report.unwrap();
    assert_eq!((report.rows, report.skipped), (1, 1));
    assert!(report.defects[0].starts_with("line 3"), "{report:?}");
    assert!(check("acme", b"", Coverage::Whole).is_err());
    assert!(check("acme", b"PK nonsense", Coverage::Whole).is_err());
}

#[test]
fn what_a_whole_file_lacks_is_named() {
    let found = |provider: &str| defects(provider, &of(provider), Coverage::Whole).join("\n");
    let azure = found("azure");
    assert!(azure.contains("no row has H100NVL"), "{azure}");
    assert!(azure.contains("Standard_D2s_v3 is in"), "{azure}");
    let aws = found("aws");
    assert!(aws.contains("spot or on-demand rows are missing"), "{aws}");
    let mut oci = of("oci");
    oci.iter_mut().for_each(|item| item.flags.clear());
    let oci = defects("oci", &oci, Coverage::Whole).join("\n");
    assert!(oci.contains("oci-spot"), "{oci}");
    let mut runpod = of("runpod");
    runpod.extend(of("verda").into_iter().filter(|item| item.gpu_count == 0));
    assert!(defects("runpod", &runpod, Coverage::Whole)[0].contains("runpod-cpu"));
    let nebius = of("nebius");
    let some: Vec<CatalogItem> = nebius
        .into_iter()
        .filter(|item| item.gpu_count > 0)
        .collect();
    assert!(defects("nebius", &some, Coverage::Whole).contains(&"no CPU rows".to_owned()));
}
