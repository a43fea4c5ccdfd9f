//! What is asked of machines: ranges, sizes, CPUs, GPUs, disks.

use dstack_backend_types::resources::{CpuSpec, DiskSpec, GpuSpec, Memory, Range, ResourcesSpec};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::object::with_doc;
use super::parts::{self, about, any_case, any_of, nullable, whole};
use super::{Described, Object, of};
use crate::config::{Blocks, FleetNodes};

/// A count in a range; spaces do not matter.
const COUNT: &str = r"\+?[0-9][0-9 ]*(\.[0 ]+)?";
/// A number in a size; spaces do not matter.
const SIZE_NUMBER: &str = r"[+-]? *([0-9][0-9 ]*\.?[0-9 ]*|\.[0-9 ]+)([eE] *[+-]? *[0-9][0-9 ]*)?";

/// `a`, `a..b`, `a..`, `..b`.
fn range_of(bound: &str) -> String {
    format!(r" *({bound} *(\.\. *({bound})?)?|\.\. *{bound}) *")
}

fn size() -> String {
    format!("{SIZE_NUMBER} *([tTgGmM] *[bB])?")
}

/// A mapping with a lower and an upper bound, at least one of them.
fn bounds(bound: Schema) -> Value {
    let bound = nullable(bound);
    json!({
        "properties": {
            "min": with_doc(bound.clone(), "The least; default: no lower bound."),
            "max": with_doc(bound, "The most; default: no upper bound."),
        },
        "additionalProperties": false,
        "minProperties": 1,
    })
}

/// A range in all its forms; `numbers` is the type of its bounds.
fn range(numbers: &str, bound_pattern: &str, bound: Schema, limits: Value) -> Schema {
    let mut schema = json_schema!({
        "type": [numbers, "string", "object"],
        "pattern": whole(&range_of(bound_pattern)),
    });
    parts::extend(&mut schema, bounds(bound));
    parts::extend(&mut schema, limits);
    schema
}

impl Described for Range<u32> {
    const NAME: Option<&'static str> = Some("CountRange");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let limits = json!({
            "minimum": 0,
            "patternErrorMessage": "expected a count or a range such as 2, 1..4 or 1..",
        });
        let schema = range(
            "integer",
            COUNT,
            parts::integer_in(0, i64::from(u32::MAX)),
            limits,
        );
        about(
            schema,
            "A count or a range of counts.",
            json!([2, "1..4", "1..", "..8"]),
        )
    }
}

impl Described for Memory {
    const NAME: Option<&'static str> = Some("Size");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let schema = json_schema!({
            "type": ["number", "string"],
            "pattern": whole(&format!(" *{} *", size())),
            "patternErrorMessage": "expected a size such as 512MB, 16GB or 1TB",
        });
        about(
            schema,
            "A number of GB, or a text with MB, GB or TB.",
            json!(["512MB", "16GB", "1TB"]),
        )
    }
}

impl Described for Range<Memory> {
    const NAME: Option<&'static str> = Some("SizeRange");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let bound = of::<Memory>(generator);
        let limits = json!({"patternErrorMessage": "expected a size or a range such as 16GB, 16GB..64GB or 100GB.."});
        let schema = range("number", &size(), bound, limits);
        about(
            schema,
            "A size or a range of sizes; a bare number is GB.",
            json!(["16GB", "16GB..64GB", "100GB..", "..1TB"]),
        )
    }
}

impl Described for CpuSpec {
    const NAME: Option<&'static str> = Some("Cpu");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let arch = any_case(&["x86", "arm"]);
        let count = format!(r"[0-9 ]*[0-9] *|{}", range_of(COUNT));
        let short = json_schema!({
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": whole(&format!(r"({count})( *: *({arch}))?| *({arch}) *( *: *({count}))?")),
            "patternErrorMessage": "expected CPUs such as 4, 2..8 or arm:4..",
        });
        let word = json_schema!({"type": "string", "pattern": whole(&arch)});
        let mut long = Object::default();
        long.optional("arch", "The architecture: x86 or arm.", nullable(word));
        long.optional(
            "count",
            "How many virtual CPUs; default `2..`.",
            of::<Range<u32>>(generator),
        );
        let mut alone = json_schema!({"type": "object"});
        parts::extend(
            &mut alone,
            bounds(parts::integer_in(0, i64::from(u32::MAX))),
        );
        about(
            any_of([short, long.finish("", ""), alone]),
            "Virtual CPUs of a machine: a count or a range, maybe with the architecture.",
            json!([4, "2..8", "arm:4.."]),
        )
    }
}

impl Described for GpuSpec {
    const NAME: Option<&'static str> = Some("Gpu");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let name = r"[A-Za-z][^:,]*( *, *[^:, ][^:,]*)*";
        let memory = format!("(?=[^:]*[A-Za-z]){}", range_of(&size()));
        let token = format!("( *{name}|{memory}|{})", range_of(COUNT));
        let short = json_schema!({
            "type": ["integer", "string"],
            "minimum": 0,
            "pattern": whole(&format!("{token}(:{token}){{0,3}}")),
            "patternErrorMessage": "expected a GPU such as 2, 24GB, H100 or H100:80GB:8",
        });
        let vendors = [
            "nvidia",
            "amd",
            "google",
            "tpu",
            "intel",
            "tenstorrent",
            "tt",
        ];
        let vendor = json_schema!({
            "anyOf": [{"enum": vendors}, {"type": "string", "pattern": whole(&any_case(&vendors))}],
        });
        let names = json_schema!({
            "type": ["string", "number", "array"],
            "items": {"type": ["string", "number"]},
            "pattern": whole(r"\s*[^,\s][^,]*(,\s*[^,\s][^,]*)*"),
        });
        let capability = json_schema!({
            "type": ["string", "number", "array"],
            "pattern": whole(r"\s*\+?[0-9]+\.\+?[0-9]+\s*"),
            "items": parts::integer_in(0, i64::from(u32::MAX)),
            "minItems": 2,
            "maxItems": 2,
        });
        let mut long = Object::default();
        long.optional("vendor", "Who makes it.", nullable(vendor));
        long.optional(
            "name",
            "A model, or several of which any will do.",
            nullable(names),
        );
        long.optional(
            "count",
            "How many; default `1..`.",
            of::<Range<u32>>(generator),
        );
        long.optional(
            "memory",
            "Memory of each GPU.",
            of::<Option<Range<Memory>>>(generator),
        );
        long.optional(
            "total_memory",
            "Memory of all GPUs of the machine together.",
            of::<Option<Range<Memory>>>(generator),
        );
        long.optional(
            "compute_capability",
            "The least compute capability of NVIDIA GPUs, such as `8.6` in quotes.",
            nullable(capability),
        );
        about(
            any_of([short, long.finish("", "")]),
            "GPUs of a machine: vendor, names, memory and count, in any order and separated by colons.",
            json!([
                2,
                "24GB",
                "H100",
                "H100:80GB:8",
                "nvidia:A100,H100:40GB..:2",
                "amd:MI300X:8",
                "tpu:v5litepod-8"
            ]),
        )
    }
}

impl Described for DiskSpec {
    const NAME: Option<&'static str> = Some("Disk");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let mut long = Object::default();
        long.required("size", "Its size.", of::<Range<Memory>>(generator));
        any_of([of::<Range<Memory>>(generator), long.finish("", "")])
    }
}

impl Described for ResourcesSpec {
    const NAME: Option<&'static str> = Some("Resources");

    fn describe(generator: &mut SchemaGenerator) -> Schema {
        let mut object = Object::default();
        object.optional(
            "cpu",
            "Virtual CPUs; default `2..`.",
            of::<CpuSpec>(generator),
        );
        object.optional(
            "memory",
            "Main memory; default `8GB..`.",
            of::<Range<Memory>>(generator),
        );
        object.optional(
            "shm_size",
            "Shared memory of the container; default: as the container engine has it.",
            of::<Option<Memory>>(generator),
        );
        object.optional(
            "gpu",
            "GPUs; default: none needed.",
            of::<Option<GpuSpec>>(generator),
        );
        object.optional(
            "disk",
            "Disk; default `100GB..`.",
            of::<Option<DiskSpec>>(generator),
        );
        object.finish("Resources", "What is asked of each machine.")
    }
}

impl Described for Blocks {
    fn describe(_: &mut SchemaGenerator) -> Schema {
        let schema = json_schema!({
            "type": ["integer", "string"],
            "minimum": 1,
            "pattern": whole(&format!("auto|{}", parts::WHOLE)),
            "patternErrorMessage": "expected a number or auto",
        });
        about(
            schema,
            "A number, or `auto` for as many as there are GPUs.",
            json!(["auto", 1, 8]),
        )
    }
}

impl Described for FleetNodes {
    const NAME: Option<&'static str> = Some("FleetNodes");

    fn describe(_: &mut SchemaGenerator) -> Schema {
        let count = || parts::integer_in(0, i64::from(u32::MAX));
        let schema = json_schema!({
            "type": ["integer", "string", "object"],
            "minimum": 0,
            "pattern": whole(r" *(\+?[0-9][0-9 ]*(\.\. *(\+?[0-9][0-9 ]*)?)?|\.\. *(\+?[0-9][0-9 ]*)?) *"),
            "patternErrorMessage": "expected a number or a range such as 2, 0..4 or 1..",
            "properties": {
                "min": with_doc(count(), "How many are kept at all times; default 0."),
                "target": with_doc(nullable(count()), "How many are made at once; default: as `min`."),
                "max": with_doc(nullable(count()), "The most; default: no limit."),
            },
            "additionalProperties": false,
        });
        about(
            schema,
            "How many instances: a number, a range, or `min`, `target` (made at once) and `max`.",
            json!([2, "0..4", "1.."]),
        )
    }
}

/// Replicas of a service: an upper bound is needed.
pub(in crate::config) fn replicas(_: &mut SchemaGenerator) -> Schema {
    let bound = parts::integer_in(0, i64::from(u32::MAX));
    let schema = json_schema!({
        "type": ["integer", "string", "object"],
        "minimum": 0,
        "pattern": whole(&format!(r" *({COUNT} *(\.\. *{COUNT})?|\.\. *{COUNT}) *")),
        "patternErrorMessage": "expected a count or a range with an upper bound, such as 2 or 0..4",
        "properties": {
            "min": with_doc(nullable(bound.clone()), "The least; default 0."),
            "max": with_doc(bound, "The most."),
        },
        "additionalProperties": false,
        "required": ["max"],
    });
    about(
        schema,
        "A count, or a range with an upper bound.",
        json!([1, "1..4", "0..2"]),
    )
}
