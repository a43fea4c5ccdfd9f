//! Reads a form with one file in it, piece by piece: archives are as large as users make them.

use std::collections::VecDeque;

/// Longest header of a part.
const HEADER_LIMIT: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FormError {
    #[error("missing content-type header")]
    NoContentType,
    #[error("multipart/form-data expected, got {0}")]
    OtherContentType(String),
    #[error("missing boundary")]
    NoBoundary,
    #[error("empty form")]
    Empty,
    #[error("missing field name")]
    NoFieldName,
    #[error("unexpected field {0}")]
    UnexpectedField(String),
    #[error("missing file name")]
    NoFileName,
    #[error("extra form field(s)")]
    Extra,
    #[error("broken form: {0}")]
    Broken(&'static str),
}

/// The boundary that a content type names.
pub(crate) fn boundary(content_type: Option<&str>) -> Result<String, FormError> {
    let content_type = content_type
        .filter(|text| !text.is_empty())
        .ok_or(FormError::NoContentType)?;
    let (media_type, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
    if !media_type
        .trim()
        .eq_ignore_ascii_case("multipart/form-data")
    {
        return Err(FormError::OtherContentType(media_type.trim().to_owned()));
    }
    parameter(parameters, "boundary")
        .filter(|text| !text.is_empty())
        .ok_or(FormError::NoBoundary)
}

/// A parameter of a header's value, `name=value` or `name="value"`.
fn parameter(parameters: &str, name: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        rest = rest.trim_start_matches([';', ' ', '\t']);
        let (key, after) = rest.split_once('=')?;
        let value;
        if let Some(quoted) = after.strip_prefix('"') {
            let mut text = String::new();
            let mut chars = quoted.char_indices();
            let end = loop {
                match chars.next()? {
                    (at, '"') => break at + 1,
                    (_, '\\') => text.push(chars.next()?.1),
                    (_, c) => text.push(c),
                }
            };
            value = text;
            rest = quoted.get(end..)?;
        } else {
            let (text, after) = after.split_once(';').unwrap_or((after, ""));
            value = text.trim().to_owned();
            rest = after;
        }
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(value);
        }
    }
}

/// What the form gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// The file begins; its name.
    File(String),
    /// A piece of its content.
    Content(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Preamble,
    Header,
    Content,
    End,
}

/// A push parser: bytes in, findings out.
#[derive(Debug)]
pub(crate) struct Form {
    /// `\r\n--boundary`
    delimiter: Vec<u8>,
    /// The one field that is allowed.
    field: &'static str,
    buffer: Vec<u8>,
    at: At,
}

impl Form {
    pub(crate) fn new(boundary: &str, field: &'static str) -> Self {
        // The first delimiter may stand at the very start, where no line break is before it.
        let buffer = b"\r\n".to_vec();
        Self {
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            field,
            buffer,
            at: At::Preamble,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<VecDeque<Found>, FormError> {
        self.buffer.extend_from_slice(bytes);
        let mut found = VecDeque::new();
        while self.step(&mut found)? {}
        Ok(found)
    }

    pub(crate) fn finish(&self) -> Result<(), FormError> {
        match self.at {
            At::End => Ok(()),
            At::Preamble => Err(FormError::Empty),
            At::Header | At::Content => Err(FormError::Broken("it ends early")),
        }
    }

    /// Makes one step; `false` if more bytes are needed.
    fn step(&mut self, found: &mut VecDeque<Found>) -> Result<bool, FormError> {
        match self.at {
            At::Preamble | At::Content => self.until_delimiter(found),
            At::Header => self.header(found),
            At::End => {
                self.buffer.clear();
                Ok(false)
            }
        }
    }

    fn until_delimiter(&mut self, found: &mut VecDeque<Found>) -> Result<bool, FormError> {
        let is_content = self.at == At::Content;
        let at = find(&self.buffer, &self.delimiter);
        // What could be the start of a delimiter stays.
        let ready =
            at.unwrap_or_else(|| self.buffer.len().saturating_sub(self.delimiter.len() - 1));
        if at.is_none() && ready == 0 {
            return Ok(false);
        }
        if let Some(at) = at {
            let after = at + self.delimiter.len();
            let Some(end) = self.buffer.get(after..after + 2).map(<[u8]>::to_vec) else {
                return Ok(false);
            };
            let content: Vec<u8> = self.buffer.drain(..after + 2).take(at).collect();
            if is_content && !content.is_empty() {
                found.push_back(Found::Content(content));
            }
            self.at = match (end.as_slice(), is_content) {
                (b"--", true) => At::End,
                (b"--", false) => return Err(FormError::Empty),
                (b"\r\n", false) => At::Header,
                (b"\r\n", true) => return Err(FormError::Extra),
                _ => return Err(FormError::Broken("a boundary is followed by other text")),
            };
            return Ok(true);
        }
        let content: Vec<u8> = self.buffer.drain(..ready).collect();
        if is_content {
            found.push_back(Found::Content(content));
        }
        Ok(false)
    }

    fn header(&mut self, found: &mut VecDeque<Found>) -> Result<bool, FormError> {
        let Some(end) = find(&self.buffer, b"\r\n\r\n") else {
            if self.buffer.len() > HEADER_LIMIT {
                return Err(FormError::Broken("a header is too long"));
            }
            return Ok(false);
        };
        let header: Vec<u8> = self.buffer.drain(..end + 4).collect();
        let header = String::from_utf8_lossy(&header).into_owned();
        let disposition = header.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim()
                .eq_ignore_ascii_case("content-disposition")
                .then_some(value)
        });
        let parameters = disposition
            .and_then(|value| value.split_once(';'))
            .map_or("", |(_, rest)| rest);
        let field = parameter(parameters, "name").filter(|name| !name.is_empty());
        let field = field.ok_or(FormError::NoFieldName)?;
        if field != self.field {
            return Err(FormError::UnexpectedField(field));
        }
        let file = parameter(parameters, "filename").filter(|name| !name.is_empty());
        found.push_back(Found::File(file.ok_or(FormError::NoFileName)?));
        self.at = At::Content;
        Ok(true)
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    // Most bytes are not a carriage return: the search is one pass.
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests;
