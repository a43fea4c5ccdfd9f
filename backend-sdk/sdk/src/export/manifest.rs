//! The manifest, put together while the plugin is compiled, so that it lies in the file as plain bytes.

/// What differs between plugins.
#[derive(Debug)]
pub struct Parts {
    /// The backend's name.
    pub name: &'static str,
    /// The plugin's version.
    pub version: &'static str,
    /// Capability words.
    pub words: &'static [&'static str],
    /// 0 if the usual one applies.
    pub provisioning_timeout_s: u64,
    /// Variables that it may ask for.
    pub environment: &'static [&'static str],
}

const SDK: &str = env!("CARGO_PKG_VERSION");

/// The length of the manifest.
pub const fn length(parts: &Parts) -> usize {
    write::<0>(parts).1
}

/// The manifest itself; `N` must be its [`length`].
pub const fn bytes<const N: usize>(parts: &Parts) -> [u8; N] {
    write(parts).0
}

const fn write<const N: usize>(parts: &Parts) -> ([u8; N], usize) {
    assert!(
        is_name(parts.name),
        "a backend's name is 1 to 32 of [a-z0-9_-] and starts with a letter"
    );
    let mut out = ([0; N], 0);
    out = put(out, "{\"schema\":1,\"name\":\"");
    out = put(out, parts.name);
    out = put(out, "\",\"version\":\"");
    out = put(out, parts.version);
    out = put(out, "\",\"sdk\":\"");
    out = put(out, SDK);
    out = put(
        out,
        "\",\"abi\":{\"major\":1,\"minor\":0},\"encodings\":[\"json\"],\"capabilities\":[",
    );
    out = put_words(out, parts.words);
    out = put(out, "]");
    if !parts.environment.is_empty() {
        out = put(out, ",\"environment\":[");
        out = put_words(out, parts.environment);
        out = put(out, "]");
    }
    if parts.provisioning_timeout_s > 0 {
        out = put(out, ",\"provisioning_timeout_s\":");
        out = put_number(out, parts.provisioning_timeout_s);
    }
    put(out, "}")
}

const fn is_name(name: &str) -> bool {
    let name = name.as_bytes();
    let mut at = 0;
    while at < name.len() {
        if !name[at].is_ascii_lowercase()
            && (at == 0 || !matches!(name[at], b'0'..=b'9' | b'_' | b'-'))
        {
            return false;
        }
        at += 1;
    }
    at > 0 && at <= 32
}

/// Appends; with `N` 0 it only counts.
const fn put<const N: usize>(mut out: ([u8; N], usize), text: &str) -> ([u8; N], usize) {
    let text = text.as_bytes();
    let mut at = 0;
    while at < text.len() {
        if N > 0 {
            out.0[out.1] = text[at];
        }
        out.1 += 1;
        at += 1;
    }
    out
}

/// Words of letters, digits and `_`: nothing of them needs to be escaped.
const fn put_words<const N: usize>(mut out: ([u8; N], usize), words: &[&str]) -> ([u8; N], usize) {
    let mut at = 0;
    while at < words.len() {
        assert!(is_word(words[at]), "only letters, digits and _");
        out = put(out, if at == 0 { "\"" } else { ",\"" });
        out = put(out, words[at]);
        out = put(out, "\"");
        at += 1;
    }
    out
}

const fn is_word(word: &str) -> bool {
    let word = word.as_bytes();
    let mut at = 0;
    while at < word.len() {
        if !word[at].is_ascii_alphanumeric() && word[at] != b'_' {
            return false;
        }
        at += 1;
    }
    at > 0
}

const fn put_number<const N: usize>(mut out: ([u8; N], usize), number: u64) -> ([u8; N], usize) {
    let mut unit = 1;
    while number / unit >= 10 {
        unit *= 10;
    }
    while unit > 0 {
        #[allow(clippy::cast_possible_truncation, reason = "a digit")]
        let digit = b'0' + (number / unit % 10) as u8;
        if N > 0 {
            out.0[out.1] = digit;
        }
        out.1 += 1;
        unit /= 10;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{Parts, bytes, length};
    use dstack_backend_types::Manifest;

    #[test]
    fn the_manifest_is_what_the_host_reads() {
        const PARTS: Parts = Parts {
            name: "acme",
            version: "1.2.3-rc.1+x",
            words: &["volumes", "multinode"],
            provisioning_timeout_s: 1200,
            environment: &["ACME_KEY", "ACME_ID"],
        };
        const BYTES: [u8; length(&PARTS)] = bytes(&PARTS);
        let manifest: Manifest = serde_json::from_slice(&BYTES).unwrap();
        assert_eq!(
            (manifest.name.as_str(), manifest.version.as_str()),
            ("acme", "1.2.3-rc.1+x")
        );
        assert_eq!(manifest.sdk, env!("CARGO_PKG_VERSION"));
        assert_eq!((manifest.schema, manifest.abi.major), (1, 1));
        assert!(manifest.has("volumes") && manifest.has("multinode") && manifest.has("compute"));
        assert_eq!(manifest.provisioning_timeout_s, Some(1200));
        assert_eq!(manifest.environment, ["ACME_KEY", "ACME_ID"]);
    }

    #[test]
    fn the_usual_timeout_is_left_out() {
        const PARTS: Parts = Parts {
            name: "acme",
            version: "1.0.0",
            words: &[],
            provisioning_timeout_s: 0,
            environment: &[],
        };
        const BYTES: [u8; length(&PARTS)] = bytes(&PARTS);
        let manifest: Manifest = serde_json::from_slice(&BYTES).unwrap();
        assert_eq!(manifest.provisioning_timeout_s, None);
        assert!(manifest.capabilities.is_empty() && manifest.environment.is_empty());
    }
}
