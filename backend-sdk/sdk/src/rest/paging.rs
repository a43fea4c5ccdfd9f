//! Lists that come in pages.

use dstack_backend_types::BackendError;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{RestCall, url::join};

/// More pages than this are no list but a loop.
const MOST_PAGES: usize = 1000;

/// How an API pages its lists. Places in a reply are JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Paging {
    /// The reply names a word for the next page; none, null or empty after the last.
    Cursor {
        /// Key of the query that takes the word.
        key: String,
        /// Where the word stands.
        next: String,
    },
    /// Pages are numbered.
    Number {
        /// Key of the query that takes the number.
        key: String,
        /// Number of the first page, 0 or 1.
        first: u64,
        /// Where the number of pages stands; without one the list ends with an empty page.
        pages: Option<String>,
    },
    /// The reply names the address of the next page; none, null or empty after the last.
    NextUrl {
        /// Where the address stands.
        next: String,
    },
    /// The header `Link` names the address of the next page by `rel="next"`.
    LinkHeader,
}

impl Paging {
    /// See [`Paging::Cursor`].
    pub fn cursor(key: &str, next: &str) -> Self {
        Self::Cursor {
            key: key.to_owned(),
            next: next.to_owned(),
        }
    }

    /// Pages numbered from 1; see [`Paging::Number`].
    pub fn number(key: &str, pages: Option<&str>) -> Self {
        Self::Number {
            key: key.to_owned(),
            first: 1,
            pages: pages.map(str::to_owned),
        }
    }

    /// See [`Paging::NextUrl`].
    pub fn next_url(next: &str) -> Self {
        Self::NextUrl {
            next: next.to_owned(),
        }
    }
}

impl RestCall<'_> {
    /// All items of a list, page by page. `items` is the JSON pointer of the list in a page; empty if the page is the list.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch) of the page that fails; `internal` if a page has no such list, or the pages do not end.
    pub fn all<T: DeserializeOwned>(
        self,
        items: &str,
        paging: &Paging,
    ) -> Result<Vec<T>, BackendError> {
        let mut all = Vec::new();
        let mut number = match paging {
            Paging::Number { first, .. } => *first,
            _ => 0,
        };
        let mut call = match paging {
            Paging::Number { key, .. } => self.clone().query(key, number),
            _ => self.clone(),
        };
        let mut last_word = None;
        for _ in 0..MOST_PAGES {
            let response = call.send()?;
            let mut page: Value = call.read(response.body())?;
            let is_object = page.is_object();
            let list = match page.pointer_mut(items) {
                Some(list @ Value::Array(_)) => list.take(),
                // Some APIs leave an empty list out.
                Some(Value::Null) | None if is_object => Value::Array(Vec::new()),
                _ => {
                    return Err(BackendError::internal(format!(
                        "{}: the reply has no list at {items:?}",
                        self.name()
                    )));
                }
            };
            let list: Vec<T> = self.read_items(list, items)?;
            let is_empty = list.is_empty();
            all.extend(list);
            let word = match paging {
                Paging::Number { key, first, pages } => {
                    let last = pages
                        .as_ref()
                        .and_then(|at| page.pointer(at)?.as_u64())
                        .map(|count| count.saturating_add(*first).saturating_sub(1));
                    if is_empty || last.is_some_and(|last| number >= last) {
                        return Ok(all);
                    }
                    number = number.saturating_add(1);
                    call = self.clone().query(key, number);
                    continue;
                }
                Paging::Cursor { next, .. } | Paging::NextUrl { next } => word_at(&page, next),
                Paging::LinkHeader => response.header("link").and_then(next_link),
            };
            let Some(word) = word else { return Ok(all) };
            if last_word.as_ref() == Some(&word) {
                break;
            }
            call = match paging {
                Paging::Cursor { key, .. } => self.clone().query(key, &word),
                _ => self.clone().at(word.clone()),
            };
            last_word = Some(word);
        }
        Err(BackendError::internal(format!(
            "{}: the pages do not end",
            self.name()
        )))
    }

    fn read_items<T: DeserializeOwned>(
        &self,
        list: Value,
        items: &str,
    ) -> Result<Vec<T>, BackendError> {
        serde_path_to_error::deserialize(list).map_err(|error| {
            let (list, path) = (
                items.trim_start_matches('/').replace('/', "."),
                error.path(),
            );
            BackendError::internal(format!(
                "{}: the reply is not understood at {list}{path}: {}",
                self.name(),
                super::without_values(&error.inner().to_string())
            ))
        })
    }

    /// The same request at another address, which says everything: the query is in it.
    fn at(mut self, address: String) -> Self {
        // A path from the root of the host stands beside the base's own path.
        let base = &self.rest.base;
        let root =
            super::url::split(base).map(|parts| format!("{}://{}", parts.scheme, parts.authority));
        self.path = match root {
            Some(root) if address.starts_with('/') => {
                join(&root, &address).unwrap_or_else(|| address.clone())
            }
            _ => address,
        };
        self.without_query()
    }
}

fn word_at(page: &Value, pointer: &str) -> Option<String> {
    match page.pointer(pointer)? {
        Value::String(word) if !word.is_empty() => Some(word.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// The address of `<https://…>; rel="next"` in a `Link` header.
fn next_link(header: &str) -> Option<String> {
    header.split(',').find_map(|link| {
        let (address, attributes) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = attributes.split(';').any(|attribute| {
            let attribute = attribute.trim();
            attribute.eq_ignore_ascii_case("rel=next")
                || attribute.eq_ignore_ascii_case("rel=\"next\"")
        });
        is_next.then(|| address.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::next_link;

    #[test]
    fn the_next_page_is_found_in_a_header() {
        let header =
            r#"<https://a.example/?page=1>; rel="prev", <https://a.example/?page=3>; rel="next""#;
        assert_eq!(
            next_link(header).as_deref(),
            Some("https://a.example/?page=3")
        );
        assert_eq!(next_link(r#"<https://a.example/>; rel="last""#), None);
    }
}
