//! Generated names, and the lowest free numbers.

use std::collections::BTreeSet;

use crate::ids::Ids;

const ADJECTIVES: &[&str] = &[
    "agile", "amber", "ample", "azure", "brave", "breezy", "bright", "brisk", "bronze", "calm",
    "candid", "cheery", "clever", "coral", "cosy", "crisp", "curious", "daring", "deft", "dusky",
    "eager", "early", "earnest", "fair", "fleet", "fond", "fresh", "frosty", "gentle", "glad",
    "golden", "grand", "green", "happy", "hardy", "hazel", "honest", "humble", "ivory", "jolly",
    "keen", "kind", "lively", "loyal", "lucid", "lucky", "lunar", "mellow", "merry", "mighty",
    "mild", "misty", "modest", "neat", "nimble", "noble", "olive", "patient", "placid", "plucky",
    "polite", "prime", "proud", "quick", "quiet", "rapid", "ready", "robust", "rosy", "royal",
    "ruby", "scarlet", "serene", "sharp", "silent", "silver", "sleek", "smart", "snug", "solar",
    "solid", "spry", "steady", "stout", "sunny", "swift", "tender", "tidy", "tranquil", "trusty",
    "upbeat", "urban", "vast", "velvet", "vivid", "warm", "wise", "witty", "young", "zesty",
];

const NOUNS: &[&str] = &[
    "acorn", "alder", "anchor", "antler", "apple", "aspen", "badger", "banjo", "basil", "bay",
    "beacon", "beaver", "birch", "bison", "brook", "canoe", "canyon", "cedar", "cello", "cliff",
    "clover", "comet", "condor", "cove", "crane", "creek", "cricket", "delta", "dune", "eagle",
    "egret", "elk", "elm", "falcon", "fern", "finch", "fjord", "forest", "fox", "gecko", "glade",
    "grove", "gull", "harbor", "hare", "hawk", "heron", "hill", "ibis", "iris", "island", "ivy",
    "jay", "juniper", "kestrel", "lagoon", "lake", "lark", "lemon", "linden", "lion", "lotus",
    "lynx", "maple", "marsh", "meadow", "moose", "moss", "newt", "oak", "oasis", "orchid", "otter",
    "owl", "panda", "peak", "pebble", "pine", "plover", "pond", "poplar", "quail", "rabbit",
    "raven", "reef", "ridge", "river", "robin", "sage", "seal", "sparrow", "spruce", "stork",
    "swan", "thistle", "tiger", "trout", "tulip", "walnut", "willow",
];

/// A name such as `brisk-otter-3` that `taken` does not know; the number grows with the tries.
pub fn generate(ids: &mut Ids, taken: impl Fn(&str) -> bool) -> String {
    let mut tries = 0_u64;
    loop {
        let pick = |list: &'static [&'static str], ids: &mut Ids| {
            let at =
                usize::try_from(ids.below(u64::try_from(list.len()).unwrap_or(1))).unwrap_or(0);
            list.get(at).copied().unwrap_or("plain")
        };
        let (adjective, noun) = (pick(ADJECTIVES, ids), pick(NOUNS, ids));
        let number = ids.below(10 + tries * 10) + 1;
        let name = format!("{adjective}-{noun}-{number}");
        if !taken(&name) {
            return name;
        }
        tries += 1;
    }
}

/// The numbers from 0 that are not in `used`, lowest first, for ever.
pub fn lowest_unused(used: &BTreeSet<u32>) -> impl Iterator<Item = u32> + '_ {
    (0..=u32::MAX).filter(|number| !used.contains(number))
}
