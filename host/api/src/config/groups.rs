//! Names of groups.

use std::collections::BTreeSet;

use dstack_backend_types::reading::{Failed, FromValue, Reader};
use serde_json::Value;

use super::names::is_group_name;

/// The name of a group.
pub(super) fn name(value: &Value, cx: &mut Reader) -> Result<String, Failed> {
    match String::from_value(value, cx)? {
        name if is_group_name(&name) => Ok(name),
        name => Err(cx.fail(format!(
            "\"{name}\" is not a group name: 1 to 40 lower-case letters, digits and dashes, no dash in front"
        ))),
    }
}

/// Notes a problem of a group.
pub(super) fn fail(index: usize, message: impl Into<String>, cx: &mut Reader) -> Failed {
    cx.at_key("groups", |cx| cx.at_index(index, |cx| cx.fail(message)))
}

/// Gives unnamed groups their position as the name, and refuses empty lists and double names.
pub(super) fn number<G>(
    groups: &mut [G],
    name_of: impl Fn(&mut G) -> &mut Option<String>,
    cx: &mut Reader,
) -> Result<(), Failed> {
    if groups.is_empty() {
        return Err(cx.fail("at least one group is needed"));
    }
    let mut seen = BTreeSet::new();
    for (i, group) in groups.iter_mut().enumerate() {
        let name = name_of(group).get_or_insert_with(|| i.to_string());
        if !seen.insert(name.clone()) {
            return Err(cx.fail(format!(
                "the group name \"{name}\" occurs twice; a group without a name is named by its position from 0"
            )));
        }
    }
    Ok(())
}
