use super::{CatalogItem, read_csv};
use crate::backend_type::BackendType;
use crate::instances::{AcceleratorVendor, CpuArchitecture};
use crate::requirements::Requirements;
use serde_json::json;

const HEADER: &str = "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,cpu_arch,provider_data";

fn rows(rows: &str) -> Vec<CatalogItem> {
    let (items, bad) = read_csv(&format!("{HEADER}\n{rows}"));
    assert_eq!(bad, []);
    items
}

fn requirements(resources: serde_json::Value) -> Requirements {
    serde_json::from_value(json!({"resources": resources})).unwrap()
}

#[test]
fn a_full_and_a_bare_row_are_read() {
    let items = rows(
        "p4,north,32.5,96,1152.0,8,A100,40.0,TRUE,7600.0,Nvidia,one two,arm,\"{\"\"zone\"\": \"\"a\"\"}\"\n\
         small,south,0.1,2,4.0,0,,,False,,,,,\n",
    );
    let full = &items[0];
    assert_eq!((full.gpu_count, full.spot), (8, true));
    assert_eq!(full.gpu_vendor, Some(AcceleratorVendor::Nvidia));
    assert_eq!(full.flags, ["one", "two"]);
    assert_eq!(full.cpu_arch, CpuArchitecture::Arm);
    let offer = full.offer(&BackendType::new("acme"));
    assert_eq!(offer.backend_data["zone"], "a");
    assert_eq!(offer.instance.resources.gpus.len(), 8);
    assert_eq!(offer.instance.resources.gpus[0].memory_mib, 40 * 1024);
    assert_eq!(offer.instance.resources.disk.size_mib, 7600 * 1024);
    let bare = &items[1];
    assert_eq!(bare.cpu_arch, CpuArchitecture::X86);
    assert_eq!(bare.disk_size, None);
    assert!(bare.provider_data.is_empty());
}

#[test]
fn old_files_name_no_vendor() {
    let items = rows("a,r,1,8,16,1,tpu-v2-8,0,False,,,,,\nb,r,1,8,16,1,T4,16,False,,,,,\n");
    assert_eq!(items[0].gpu_name.as_deref(), Some("v2-8"));
    assert_eq!(items[0].gpu_vendor, Some(AcceleratorVendor::Google));
    assert_eq!(items[1].gpu_vendor, Some(AcceleratorVendor::Nvidia));
}

#[test]
fn a_bad_row_is_left_out_with_its_line() {
    let text = format!(
        "{HEADER}\n\
         good,r,1,2,4,0,,,False,,,,,\n\
         ,r,1,2,4,0,,,False,,,,,\n\
         bad,r,dear,2,4,0,,,False,,,,,\n\
         bad,r,NaN,2,4,0,,,False,,,,,\n\
         bad,r,-1,2,4,0,,,False,,,,,\n\
         bad,r,1,2,4,0,,,perhaps,,,,,\n\
         bad,r,1,2,4,1,X,1,False,,acme,,,\n\
         bad,r,1,2,4,0,,,False,,,,mips,\n\
         bad,r,1,2,4,0,,,False,,,,,[1]\n\
         short,r,1\n\
         good,r,1,2,4,0,,,False,,,,,,extra\n"
    );
    let (items, bad) = read_csv(&text);
    assert_eq!(items.len(), 2);
    let lines: Vec<u64> = bad.iter().map(|row| row.line).collect();
    assert_eq!(lines, (3..=11).collect::<Vec<_>>());
    assert!(bad[0].reason.contains("instance_name"), "{:?}", bad[0]);
    assert!(bad[1].reason.contains("dear"), "{:?}", bad[1]);
}

#[test]
fn columns_are_found_by_name_and_unknown_ones_ignored() {
    let (items, bad) = read_csv(
        "colour,spot,gpu_count,memory,cpu,price,location,instance_name\nred,False,0,4,2,1,r,n\n",
    );
    assert_eq!((items[0].instance_name.as_str(), bad.len()), ("n", 0));
    let (items, bad) = read_csv("nothing,here\n1,2\n");
    assert_eq!((items.len(), bad.len()), (0, 1));
    assert_eq!(read_csv(""), (Vec::new(), Vec::new()));
}

#[test]
fn what_fits() {
    let items = rows(
        "cpu,r,1,8,32,0,,,False,,,,,\n\
         gpu,r,2,8,32,1,RTX3060Ti,8,True,50,nvidia,,,\n",
    );
    let names = |requirements: &Requirements, is_disk_configurable: bool| -> Vec<&str> {
        items
            .iter()
            .filter(|item| item.fits(requirements, is_disk_configurable))
            .map(|item| item.instance_name.as_str())
            .collect()
    };
    let any = json!({"cpu": "2..", "memory": "8GB..", "gpu": "0..", "disk": "10GB.."});
    assert_eq!(names(&requirements(any.clone()), false), ["cpu", "gpu"]);
    let mut dear = requirements(any.clone());
    dear.max_price = Some(1.0);
    assert_eq!(names(&dear, false), ["cpu"]);
    let mut spot = requirements(any);
    spot.spot = Some(true);
    assert_eq!(names(&spot, false), ["gpu"]);
    let gpu = json!({"cpu": "2..", "memory": "8GB..", "gpu": "RTX3060TI:1", "disk": "100GB.."});
    assert_eq!(names(&requirements(gpu.clone()), false), Vec::<&str>::new());
    assert_eq!(names(&requirements(gpu), true), ["gpu"]);
}

#[test]
fn flags_hide() {
    let items = rows("a,r,1,8,16,0,,,False,,,x y,,\nb,r,1,8,16,0,,,False,,,,,\n");
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(ToString::to_string).collect() };
    assert!(!items[0].has_only_flags(&words(&["x"])));
    assert!(items[0].has_only_flags(&words(&["x", "y", "z"])));
    assert!(items[1].has_only_flags(&[]));
}
