//! Versions of clients, in the notation of Python packages.

use std::fmt;

/// A version: `0.22.5`, `0.22.5rc1`, `1!2.0.post1+local`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Version {
    text: String,
    epoch: u64,
    release: Vec<u64>,
    /// Before the release itself: alpha, beta, candidate, development.
    is_before: bool,
}

impl Version {
    /// Reads a version; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let lower = text.trim().to_ascii_lowercase();
        let rest = lower.strip_prefix('v').unwrap_or(&lower);
        let (rest, local) = rest
            .split_once('+')
            .map_or((rest, None), |(rest, local)| (rest, Some(local)));
        if local.is_some_and(|local| {
            local.is_empty()
                || !local
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
        }) {
            return None;
        }
        let (epoch, rest) = match rest.split_once('!') {
            Some((epoch, rest)) => (number(epoch)?, rest),
            None => (0, rest),
        };
        let digits_end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (numbers, suffix) = rest.split_at_checked(digits_end)?;
        let release: Vec<u64> = numbers
            .trim_end_matches('.')
            .split('.')
            .map(number)
            .collect::<Option<_>>()?;
        let is_before = check_suffix(suffix)?;
        Some(Self {
            text: text.trim().to_owned(),
            epoch,
            release,
            is_before,
        })
    }

    /// Major, minor and patch.
    pub(crate) fn release(&self) -> [u64; 3] {
        let at = |index: usize| self.release.get(index).copied().unwrap_or(0);
        [at(0), at(1), at(2)]
    }

    /// Whether a client of this version may know things that `server` does not.
    pub(crate) fn is_too_new_for(&self, server: &Self) -> bool {
        let ([major, minor, _], [server_major, server_minor, _]) =
            (self.release(), server.release());
        self.is_after(server) && (major > server_major || minor > server_minor)
    }

    fn is_after(&self, other: &Self) -> bool {
        (self.epoch, &self.release, !self.is_before)
            > (other.epoch, &other.release, !other.is_before)
    }
}

fn number(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// Checks what stands behind the numbers; tells whether it means "before the release".
fn check_suffix(suffix: &str) -> Option<bool> {
    let mut rest = suffix;
    let mut is_before = false;
    while !rest.is_empty() {
        rest = rest.trim_start_matches(['.', '-', '_']);
        let word_end = rest
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(rest.len());
        let (word, tail) = rest.split_at_checked(word_end)?;
        match word {
            "a" | "alpha" | "b" | "beta" | "c" | "rc" | "pre" | "preview" | "dev" => {
                is_before = true
            }
            // A bare number after a dash is a post release.
            "post" | "rev" | "r" | "" => {}
            _ => return None,
        }
        let tail = tail.trim_start_matches(['.', '-', '_']);
        let digits_end = tail
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(tail.len());
        if word.is_empty() && digits_end == 0 {
            return None;
        }
        rest = tail.get(digits_end..)?;
    }
    Some(is_before)
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn reads_package_versions_only() {
        for good in [
            "0.22.5",
            "v1.0",
            "1!2.0.post1+abc.1",
            "0.22.5rc1",
            "0.22.5.dev3",
            "1.0-1",
            "2",
        ] {
            assert!(Version::parse(good).is_some(), "{good}");
        }
        for bad in ["", "abc", "1..2", "1.0-", "1.0+", "0.22.5 beta x", "1.0!"] {
            assert!(Version::parse(bad).is_none(), "{bad}");
        }
    }
}
