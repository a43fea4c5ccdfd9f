//! Names of a backend, and what cannot be one.

use dstack_backend_types::backend_type::KNOWN_BACKENDS;

use crate::ScaffoldError;

/// Longest name: the manifest's rule.
const MAX_LEN: usize = 32;

/// Rust's words; a type or crate cannot be called so.
const RUST_WORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate",
    "do", "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl",
    "in", "let", "loop", "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref",
    "return", "self", "static", "struct", "super", "trait", "true", "try", "type", "typeof",
    "union", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Crates `dstack-backend-…` that are no backends, or examples and tests of one. Those of other names could not be meant.
const OUR_CRATES: &[&str] = &[
    "abi",
    "catalog",
    "conformance",
    "constructor",
    "fake",
    "future",
    "hello",
    "loader",
    "misbehaving",
    "probe",
    "raw",
    "scaffold",
    "sdk",
    "types",
    "wrong",
];

/// The forms of a backend's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    /// As it was given: `ExampleXYZ`. Types begin with it.
    pub camel: String,
    /// The backend's: `examplexyz`.
    pub lower: String,
    /// Variables of the environment begin with it: `EXAMPLEXYZ`.
    pub upper: String,
}

impl Names {
    /// Checks a name given in camel case.
    ///
    /// # Errors
    /// [`ScaffoldError::Name`] that says what would be right.
    pub fn parse(name: &str) -> Result<Self, ScaffoldError> {
        let refuse = |reason: String| ScaffoldError::Name {
            name: name.chars().take(80).collect(),
            reason,
        };
        let lower = name.to_ascii_lowercase();
        let problem = if name.is_empty() {
            "it is empty".to_owned()
        } else if let Some(bad) = name.chars().find(|c| !c.is_ascii_alphanumeric()) {
            format!(
                "{bad:?} is in it, but it takes the letters A-Z, a-z and digits only, as in ExampleXYZ"
            )
        } else if name.starts_with(|c: char| c.is_ascii_digit()) {
            "it begins with a digit, but types and crates begin with a letter".to_owned()
        } else if name.len() > MAX_LEN {
            format!("it has {} characters, at most {MAX_LEN} fit", name.len())
        } else if RUST_WORDS.contains(&lower.as_str()) {
            format!("`{lower}` is a word of Rust")
        } else if KNOWN_BACKENDS.iter().any(|known| known.name == lower) {
            format!("there is a backend `{lower}` already")
        } else if OUR_CRATES.contains(&lower.as_str()) {
            format!("there is a crate `dstack-backend-{lower}` already")
        } else {
            let mut camel = name.to_owned();
            // `acme` is a fine name; types begin with a capital.
            if let Some(first) = camel.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            return Ok(Self {
                camel,
                upper: lower.to_ascii_uppercase(),
                lower,
            });
        };
        Err(refuse(problem))
    }

    /// The crate's name.
    pub fn package(&self) -> String {
        format!("dstack-backend-{}", self.lower)
    }
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn names_have_their_forms() {
        let names = Names::parse("ExampleXYZ").unwrap();
        assert_eq!(
            (
                names.camel.as_str(),
                names.lower.as_str(),
                names.upper.as_str()
            ),
            ("ExampleXYZ", "examplexyz", "EXAMPLEXYZ")
        );
        assert_eq!(names.package(), "dstack-backend-examplexyz");
        assert_eq!(Names::parse("acme2").unwrap().camel, "Acme2");
        assert!(Names::parse(&"a".repeat(32)).is_ok());
    }

    #[test]
    fn what_cannot_be_a_name_is_refused_with_the_reason() {
        for (name, reason) in [
            ("", "empty"),
            ("Aws", "there is a backend `aws`"),
            ("LOCAL", "there is a backend `local`"),
            ("remote", "there is a backend"),
            ("Sdk", "there is a crate"),
            ("hello", "there is a crate"),
            ("Type", "word of Rust"),
            ("self", "word of Rust"),
            ("Größe", "'ö'"),
            ("クラウド", "letters A-Z"),
            ("my cloud", "' '"),
            ("my-cloud", "'-'"),
            ("../x", "'.'"),
            ("a/b", "'/'"),
            ("2cloud", "digit"),
            ("a\0b", "letters"),
            (&"a".repeat(33), "33 characters"),
        ] {
            let error = Names::parse(name).unwrap_err().to_string();
            assert!(error.contains(reason), "{name}: {error}");
        }
    }
}
