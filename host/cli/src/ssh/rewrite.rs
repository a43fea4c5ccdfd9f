//! Addresses that a job prints, as they can be opened here.

use regex::bytes::{Captures, Regex};

use super::Connection;

/// Replaces addresses of forwarded ports in what a job prints.
#[derive(Debug)]
pub(crate) struct Rewriter {
    pattern: Option<Regex>,
    host: String,
    /// Remote and local port.
    ports: Vec<(u16, u16)>,
}

impl Rewriter {
    pub(crate) fn of(connection: &Connection) -> Self {
        let ports = connection.forwards.iter();
        Self::new(
            &connection.host,
            &connection.hostname,
            ports
                .map(|forward| (forward.remote, forward.local))
                .collect(),
        )
    }

    fn new(host: &str, hostname: &str, ports: Vec<(u16, u16)>) -> Self {
        let mut names = vec!["localhost", r"0\.0\.0\.0", r"127\.0\.0\.1"];
        let escaped = regex::escape(hostname);
        if !hostname.is_empty() {
            names.push(&escaped);
        }
        let pattern = format!(
            r"(?-u)\b(https?)://(?:{}):([0-9]{{1,5}})\b",
            names.join("|")
        );
        Self {
            // The pattern is ours and right; without it nothing would be replaced.
            pattern: Regex::new(&pattern).ok().filter(|_| !ports.is_empty()),
            host: host.to_owned(),
            ports,
        }
    }

    /// The text with its addresses replaced.
    pub(crate) fn rewrite(&self, text: Vec<u8>) -> Vec<u8> {
        let Some(pattern) = &self.pattern else {
            return text;
        };
        let replace = |found: &Captures<'_>| -> Vec<u8> {
            let whole = found.get(0).map_or(&b""[..], |whole| whole.as_bytes());
            let part = |at| {
                found
                    .get(at)
                    .and_then(|part| std::str::from_utf8(part.as_bytes()).ok())
            };
            let port: Option<u16> = part(2).and_then(|digits| digits.parse().ok());
            let local = self.ports.iter().find(|(remote, _)| Some(*remote) == port);
            match (local, part(1)) {
                (Some((_, local)), Some(scheme)) => {
                    format!("{scheme}://{}:{local}", self.host).into_bytes()
                }
                _ => whole.to_vec(),
            }
        };
        pattern.replace_all(&text, replace).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_forwarded_ports_change() {
        let rewriter = Rewriter::new("localhost", "10.1.2.3", vec![(8080, 18080), (80, 8000)]);
        let text = b"at http://0.0.0.0:8080/x?a=1 and https://10.1.2.3:80, http://127.0.0.1:9, http://10x1.2.3:80 \xff\n";
        let expected: &[u8] = b"at http://localhost:18080/x?a=1 and https://localhost:8000, http://127.0.0.1:9, http://10x1.2.3:80 \xff\n";
        assert_eq!(rewriter.rewrite(text.to_vec()), expected);
    }
}
