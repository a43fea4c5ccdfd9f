//! Patterns of requests: `GET /servers/{id}`.

use std::fmt;

use percent_encoding::percent_decode_str;

/// A method and a path with holes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    method: String,
    segments: Vec<String>,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} /{}", self.method, self.segments.join("/"))
    }
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|segment| !segment.is_empty())
}

impl Pattern {
    /// A pattern without a method fits any.
    pub(super) fn new(text: &str) -> Self {
        let (method, path) = text.trim().split_once(' ').unwrap_or(("*", text.trim()));
        Self {
            method: method.to_owned(),
            segments: segments(path.trim()).map(ToOwned::to_owned).collect(),
        }
    }

    /// What stands in the holes, or `None` if the request does not fit. A slash at the end does not matter.
    pub(super) fn params_of(&self, method: &str, path: &str) -> Option<Vec<(String, String)>> {
        if self.method != "*" && !self.method.eq_ignore_ascii_case(method) {
            return None;
        }
        let mut given = segments(path);
        let mut params = Vec::new();
        for segment in &self.segments {
            let hole = segment
                .strip_prefix('{')
                .and_then(|rest| rest.strip_suffix('}'));
            match hole {
                Some(hole) => match hole.strip_suffix("..") {
                    Some(rest) => {
                        let all: Vec<String> = given.by_ref().map(decoded).collect();
                        params.push((rest.to_owned(), all.join("/")));
                        return Some(params);
                    }
                    None => params.push((hole.to_owned(), decoded(given.next()?))),
                },
                None if given.next()? == segment => {}
                None => return None,
            }
        }
        given.next().is_none().then_some(params)
    }
}

fn decoded(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn patterns_fit_whole_paths() {
        let fits = |pattern: &str, method: &str, path: &str| {
            Pattern::new(pattern).params_of(method, path).map(|params| {
                let all: Vec<String> = params
                    .into_iter()
                    .map(|(k, v)| format!("{k}={v}"))
                    .collect();
                all.join(",")
            })
        };
        assert_eq!(
            fits("GET /a/{id}", "GET", "/a/x%20y/").as_deref(),
            Some("id=x y")
        );
        assert_eq!(fits("GET /a/{id}", "POST", "/a/1"), None);
        assert_eq!(fits("GET /a/{id}", "GET", "/a"), None);
        assert_eq!(fits("GET /a/{id}", "GET", "/a/1/b"), None);
        assert_eq!(
            fits("* /a/{rest..}", "PUT", "/a/1/b").as_deref(),
            Some("rest=1/b")
        );
        assert_eq!(fits("/", "GET", "/").as_deref(), Some(""));
    }
}
