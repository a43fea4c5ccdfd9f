//! Words of a POSIX shell.

/// Why a text has no words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadShellText {
    /// A quote is not closed.
    #[error("a quote is not closed")]
    Quote,
    /// Nothing follows the last backslash.
    #[error("a backslash at the end escapes nothing")]
    Backslash,
}

/// Splits a text into words as a POSIX shell does, without expansions.
///
/// # Errors
/// A quote that is not closed or a backslash at the end.
pub fn split(text: &str) -> Result<Vec<String>, BadShellText> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\\' => word
                .get_or_insert_default()
                .push(chars.next().ok_or(BadShellText::Backslash)?),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or(BadShellText::Quote)? {
                        '\'' => break,
                        c => word.push(c),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next().ok_or(BadShellText::Quote)? {
                        '"' => break,
                        '\\' => match chars.next().ok_or(BadShellText::Quote)? {
                            c @ ('"' | '\\') => word.push(c),
                            c => word.extend(['\\', c]),
                        },
                        c => word.push(c),
                    }
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

/// Quotes a word so that a shell reads it back as one.
pub fn quote(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\"'\"'"))
}

/// Quotes words and joins them by spaces.
pub fn join<S: AsRef<str>>(words: &[S]) -> String {
    words
        .iter()
        .map(|word| quote(word.as_ref()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::{BadShellText, join, split};

    #[test]
    fn words_split_like_in_a_shell() {
        let words = |text| split(text).unwrap();
        assert_eq!(words("bash -c 'echo hi'"), ["bash", "-c", "echo hi"]);
        assert_eq!(
            words(r#"a"b c"d \e "\"\x" ''"#),
            ["ab cd", "e", "\"\\x", ""]
        );
        assert_eq!(split("'a"), Err(BadShellText::Quote));
        assert_eq!(split("a\\"), Err(BadShellText::Backslash));
    }

    #[test]
    fn joined_words_split_back() {
        let words = ["a b", "it's", "", "$HOME", "plain"];
        assert_eq!(split(&join(&words)).unwrap(), words);
    }
}
