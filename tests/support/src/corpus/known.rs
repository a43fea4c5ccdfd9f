//! The only places where this implementation does not do what the corpus says, each with its reason.
//!
//! `host/docs/configuration-differences.md` tells users about them.

use serde_json::Value;

/// Files that the reference refuses for a backend it does not know. Any plugin may bring a backend, so the name is accepted
/// here; they pass if there is a warning at the place of the reference's error.
pub(super) const WARNED_FILES: &[&str] = &["edge-backend-bad", "edge-server-unknown-backend"];

const KEYS_OF_PLUGIN: &str =
    "the plugin of that backend, once there is one, checks its keys and fills in their defaults";

/// Files whose answer needs what is built later.
pub(super) const OPEN_FILES: &[(&str, &str)] = &[
    ("real-094-mkdocs-docs-concepts-backends", KEYS_OF_PLUGIN),
    ("real-098-mkdocs-docs-concepts-backends", KEYS_OF_PLUGIN),
    ("real-099-mkdocs-docs-concepts-backends", KEYS_OF_PLUGIN),
    ("real-104-mkdocs-docs-concepts-backends", KEYS_OF_PLUGIN),
    ("real-113-mkdocs-docs-concepts-backends", KEYS_OF_PLUGIN),
    ("real-115-mkdocs-docs-concepts-backends", KEYS_OF_PLUGIN),
];

/// Vector files of later topics; there are none left.
pub(super) const OPEN_VECTORS: &[(&str, &str)] = &[];

/// Files of `vectors/` that hold data for others.
pub(super) const DATA: &[&str] = &["matching-offers"];

/// Rows marked as quirks that are refused, or answered otherwise: file, input as JSON, reason.
pub(super) const REFUSED_QUIRKS: &[(&str, &str, &str)] = &[
    ("duration", r#""1_000""#, UNDERSCORE),
    ("duration-idle", r#""1_000""#, UNDERSCORE),
    ("duration-off", r#""1_000""#, UNDERSCORE),
    ("duration", r#""٣h""#, OTHER_DIGITS),
    ("duration-off", r#""٣h""#, OTHER_DIGITS),
    ("gpu-spec", "true", BOOLEAN),
    ("memory", "true", BOOLEAN),
    ("range-int", "true", BOOLEAN),
    ("resource-name", r#""ab\n""#, LINE_BREAK),
    ("tag-key", r#""a\n""#, LINE_BREAK),
    ("tag-value", r#""a\n""#, LINE_BREAK),
];

const UNDERSCORE: &str = "an underscore inside of a quoted number is more likely a slip; unquoted, YAML reads 1_000 as 1000";
const OTHER_DIGITS: &str = "only the digits 0 to 9 are numbers, so that everybody reads the same";
const BOOLEAN: &str = "a boolean where a number or a name belongs is a slip";
const LINE_BREAK: &str =
    "a line break at the end of a name or tag cannot be seen, and providers refuse it";

/// Why a row is refused, if it is one of those.
pub(super) fn refused_quirk(file: &str, row: &Value) -> Option<&'static str> {
    if row["quirk"] != true {
        return None;
    }
    let input = row["input"].to_string();
    let listed = REFUSED_QUIRKS
        .iter()
        .find(|(name, known, _)| *name == file && *known == input);
    listed.map(|(_, _, why)| *why)
}
