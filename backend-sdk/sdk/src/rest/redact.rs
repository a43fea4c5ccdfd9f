//! Keeping secrets out of messages.

/// Shorter words would cut up ordinary text, and are no secrets.
const SHORTEST_SECRET: usize = 4;
/// How much of a reply is shown in an error.
const SHOWN: usize = 300;

/// `text` without the secrets, cut to what people read.
pub(super) fn clean(text: &str, secrets: &[String]) -> String {
    let mut clean = text.trim().to_owned();
    for secret in secrets {
        if secret.len() >= SHORTEST_SECRET {
            clean = clean.replace(secret.as_str(), "***");
        }
    }
    // Cut last: a secret that lies across the end would stay in part.
    match clean.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", clean.get(..end).unwrap_or_default()),
        None => clean,
    }
}

/// serde quotes the offending text, which may be a credential, e.g. `invalid type: string "key", expected u16`.
pub(crate) fn without_values(message: &str) -> String {
    let mut clean = String::with_capacity(message.len());
    for (i, part) in message.split('"').enumerate() {
        clean.push_str(if i % 2 == 0 { part } else { "…" });
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn secrets_are_cut_out_before_the_text_is_cut_off() {
        let secrets = ["hush-hush".to_owned(), "a".to_owned(), String::new()];
        assert_eq!(clean(" the key hush-hush ", &secrets), "the key ***");
        let long = format!("{}hush-hush", "x".repeat(296));
        let cut = clean(&long, &secrets);
        assert!(!cut.contains("hush") && cut.ends_with("***"), "{cut}");
        assert_eq!(clean(&"ü".repeat(400), &[]).chars().count(), 301);
    }
}
