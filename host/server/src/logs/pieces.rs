//! Output as text in pieces that a provider takes.

/// The text, bytes that are none replaced, in pieces of at most `most` bytes. Nothing for an empty message.
pub(super) fn pieces(message: &[u8], most: usize) -> Vec<String> {
    let mut rest = String::from_utf8_lossy(message).into_owned();
    let mut all = Vec::new();
    while rest.len() > most {
        let mut cut = most.max(4);
        while !rest.is_char_boundary(cut) {
            cut -= 1;
        }
        let tail = rest.split_off(cut);
        all.push(std::mem::replace(&mut rest, tail));
    }
    if !rest.is_empty() {
        all.push(rest);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::pieces;

    #[test]
    fn long_output_is_cut_between_characters_and_nothing_is_lost() {
        assert_eq!(pieces(b"", 10), [""; 0]);
        assert_eq!(pieces(b"abc\xff", 10), ["abc\u{fffd}"]);
        let text = "äöü€😀".repeat(50);
        let cut = pieces(text.as_bytes(), 10);
        assert!(cut.iter().all(|it| it.len() <= 10 && !it.is_empty()));
        assert_eq!(cut.concat(), text);
    }
}
