//! Addresses.

use std::fmt::Write;

/// A word for a path or a query: everything but `A-Z a-z 0-9 - . _ ~` is percent-encoded.
pub fn encode(word: &str) -> String {
    let mut encoded = String::with_capacity(word.len());
    for byte in word.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            write!(encoded, "%{byte:02X}").ok();
        }
    }
    encoded
}

/// Pairs as `a=1&b=2`.
pub(super) fn query<K: AsRef<str>, V: AsRef<str>>(pairs: &[(K, V)]) -> String {
    let pairs = pairs
        .iter()
        .map(|(key, value)| format!("{}={}", encode(key.as_ref()), encode(value.as_ref())));
    pairs.collect::<Vec<_>>().join("&")
}

/// An address in parts, the encoded words as they are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    pub(super) scheme: &'a str,
    /// Host and port.
    pub(super) authority: &'a str,
    /// Begins with `/`, or is empty.
    pub(super) path: &'a str,
    /// Without `?`.
    pub(super) query: &'a str,
}

pub(super) fn split(url: &str) -> Option<Parts<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let rest = rest.split('#').next().unwrap_or_default();
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match before.find('/') {
        Some(at) => before.split_at(at),
        None => (before, ""),
    };
    Some(Parts {
        scheme,
        authority,
        path,
        query,
    })
}

/// The address of a path below `base`, or of an address that the API itself has named.
///
/// `None` for an address elsewhere: our login would go along to whoever stands there.
pub(super) fn join(base: &str, path: &str) -> Option<String> {
    let Some(named) = split(path).filter(|parts| matches!(parts.scheme, "http" | "https")) else {
        let slash = if path.is_empty() || path.starts_with(['/', '?']) {
            ""
        } else {
            "/"
        };
        return Some(format!("{base}{slash}{path}"));
    };
    let base = split(base)?;
    let is_ours = named.scheme.eq_ignore_ascii_case(base.scheme)
        && named.authority.eq_ignore_ascii_case(base.authority);
    is_ours.then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{encode, join, query, split};

    #[test]
    fn words_are_encoded() {
        assert_eq!(encode("a b/ü~"), "a%20b%2F%C3%BC~");
        assert_eq!(query(&[("a", "1 2"), ("b&", "")]), "a=1%202&b%26=");
    }

    #[test]
    fn addresses_are_split() {
        let parts = split("https://a.example:8443/x/y?q=1#f").unwrap();
        assert_eq!(
            (parts.scheme, parts.authority, parts.path, parts.query),
            ("https", "a.example:8443", "/x/y", "q=1")
        );
        assert_eq!(split("https://a.example").unwrap().path, "");
        assert_eq!(split("/x"), None);
    }

    #[test]
    fn our_login_goes_nowhere_else() {
        let base = "https://a.example/v1";
        assert_eq!(join(base, "/x").unwrap(), "https://a.example/v1/x");
        assert_eq!(join(base, "x").unwrap(), "https://a.example/v1/x");
        let next = "https://A.example/v1/x?page=2";
        assert_eq!(join(base, next).as_deref(), Some(next));
        for other in [
            "https://b.example/v1",
            "http://a.example/v1",
            "https://a.example.evil/",
            "https://a.example@evil/",
        ] {
            assert_eq!(join(base, other), None, "{other}");
        }
    }
}
