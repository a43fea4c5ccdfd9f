//! Templates and what becomes of them.
//!
//! A template is the file itself: `__Name__`, `__name__`, `__NAME__` and `__sdk_…__` stand for what differs. Lines between
//! `//? vm` (or `#? vm`, `<!--? vm -->`) and `//?` are there for machines only, and so on for every word of [`words`]; two words
//! in one line must both hold. So templates of Rust stay Rust, and are formatted like everything else.

use crate::{Auth, Kind, Names, Order};

/// Path below the crate's folder, and the template.
const TEMPLATES: &[(&str, &str)] = &[
    (".gitignore", include_str!("../templates/gitignore")),
    ("Cargo.toml", include_str!("../templates/Cargo.toml.tmpl")),
    ("README.md", include_str!("../templates/README.md")),
    (
        "examples/__name__-provider.rs",
        include_str!("../templates/examples/provider.rs"),
    ),
    (
        "src/backend.rs",
        include_str!("../templates/src/backend.rs"),
    ),
    ("src/client.rs", include_str!("../templates/src/client.rs")),
    (
        "src/compute.rs",
        include_str!("../templates/src/compute.rs"),
    ),
    ("src/config.rs", include_str!("../templates/src/config.rs")),
    (
        "src/configurator.rs",
        include_str!("../templates/src/configurator.rs"),
    ),
    ("src/lib.rs", include_str!("../templates/src/lib.rs")),
    (
        "src/offers.csv",
        include_str!("../templates/src/offers.csv"),
    ),
    ("src/offers.rs", include_str!("../templates/src/offers.rs")),
    (
        "tests/it/cloud.rs",
        include_str!("../templates/tests/it/cloud.rs"),
    ),
    (
        "tests/it/main.rs",
        include_str!("../templates/tests/it/main.rs"),
    ),
];

/// The words that hold for an order.
fn words(order: &Order, is_outside: bool) -> [&'static str; 3] {
    [
        match order.kind {
            Kind::Vm => "vm",
            Kind::Container => "container",
        },
        match order.auth {
            Auth::Bearer => "bearer",
            Auth::Basic => "basic",
            Auth::Signed => "signed",
        },
        if is_outside { "outside" } else { "inside" },
    ]
}

/// All files of a crate: path and text. `patches` is what a crate on its own adds to its manifest; `None` in the repository.
pub(crate) fn files(order: &Order, names: &Names, patches: Option<&str>) -> Vec<(String, String)> {
    let words = words(order, patches.is_some());
    TEMPLATES
        .iter()
        .filter(|(path, _)| patches.is_some() || *path != ".gitignore")
        .map(|(path, template)| {
            let text = chosen(template, &words)
                .replace("__Name__", &names.camel)
                .replace("__name__", &names.lower)
                .replace("__NAME__", &names.upper)
                .replace("__sdk_version__", env!("CARGO_PKG_VERSION"))
                .replace("__sdk_patches__", patches.unwrap_or_default());
            (path.replace("__name__", &names.lower), text)
        })
        .collect()
}

/// The lines whose words hold.
fn chosen(template: &str, words: &[&str]) -> String {
    let mut text = String::with_capacity(template.len());
    let mut is_kept = true;
    for line in template.lines() {
        match marker(line) {
            Some(asked) => is_kept = asked.split_whitespace().all(|word| words.contains(&word)),
            None if is_kept => {
                text.push_str(line);
                text.push('\n');
            }
            None => {}
        }
    }
    text
}

/// The words of a marker line; none ends a choice.
fn marker(line: &str) -> Option<&str> {
    let line = line.trim();
    let words = line
        .strip_prefix("//?")
        .or_else(|| line.strip_prefix("#?"))
        .or_else(|| line.strip_prefix("<!--?"))?;
    Some(words.trim_end_matches("-->").trim())
}

#[cfg(test)]
mod tests {
    use super::{chosen, files, marker};
    use crate::{Auth, Kind, Names, Order, SEARCH_WORD};

    #[test]
    fn lines_are_chosen_by_their_words() {
        let template =
            "a\n//? vm\nb\n//? vm basic\nc\n  #? container\nd\n<!--? vm -->\ne\n//?\nf\n";
        assert_eq!(chosen(template, &["vm", "bearer"]), "a\nb\ne\nf\n");
        assert_eq!(marker("// plain"), None);
    }

    #[test]
    fn every_place_to_fill_in_is_listed_and_nothing_of_the_template_is_left() {
        let names = Names::parse("ExampleXYZ").unwrap();
        for kind in [Kind::Vm, Kind::Container] {
            for auth in [Auth::Bearer, Auth::Basic, Auth::Signed] {
                for patches in [None, Some("[patch]\n")] {
                    let order = Order {
                        name: names.camel.clone(),
                        kind,
                        auth,
                    };
                    let files = files(&order, &names, patches);
                    let readme = &files
                        .iter()
                        .find(|(path, _)| path == "README.md")
                        .unwrap()
                        .1;
                    for (path, text) in &files {
                        for left in ["__", "//?", "#?", "<!--?"] {
                            assert!(!path.contains(left), "{path}");
                            assert!(!text.contains(left), "{path}: {left}");
                        }
                        let is_to_fill_in = path != "README.md" && text.contains(SEARCH_WORD);
                        assert_eq!(
                            readme.contains(&format!("| `{path}` |")),
                            is_to_fill_in,
                            "{path} in the README"
                        );
                    }
                    assert!(readme.contains("# Permissions"));
                }
            }
        }
    }
}
