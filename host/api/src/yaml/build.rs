//! From the parser's events to the tree: aliases, merge keys, double keys, limits.

use std::collections::BTreeMap;

use granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::keys::Keys;
use super::report::{Located, lines};
use super::scalar::{self, Refused};
use super::tree::{Data, Entry, Mark, Node, Size};

/// Nodes of a document at most, each alias counted with all it stands for, and each anchor with the copy it keeps.
const MAX_NODES: usize = 50_000;
/// Bytes of a document's words at most, counted like nodes: a long text may be repeated by aliases, too.
const MAX_TEXT: usize = 4 << 20;
/// Levels of a document at most.
const MAX_DEPTH: usize = 64;
/// Warnings at most; more say nothing new.
const MAX_WARNINGS: usize = 100;
/// The greatest length of a file, in bytes.
pub const MAX_BYTES: usize = 512 << 10;

/// Reads the only document of a text, with its warnings.
pub(super) fn build(text: &str) -> Result<(Node, Vec<Located>), Located> {
    if text.len() > MAX_BYTES {
        return Err(too_long());
    }
    check_characters(text)?;
    let mut builder = Builder {
        parser: Parser::new_from_str(text),
        anchors: BTreeMap::new(),
        size: Size::default(),
        warnings: Vec::new(),
    };
    let root = builder.document()?;
    Ok((root, builder.warnings))
}

/// What is said about a file above [`MAX_BYTES`].
pub(super) fn too_long() -> Located {
    let message = format!("the file has more than {MAX_BYTES} bytes");
    Located::at(Mark { line: 1, column: 1 }, message)
}

/// Control characters are no YAML; the parser does not look for them.
fn check_characters(text: &str) -> Result<(), Located> {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{85}' | ' '..='~' | '\u{A0}'..='\u{FFFD}' | '\u{10000}'..);
    for (index, line) in lines(text).enumerate() {
        if let Some(column) = line.chars().position(|c| !allowed(c)) {
            let mark = Mark {
                line: index + 1,
                column: column + 1,
            };
            return Err(Located::at(
                mark,
                "a control character is not possible here".to_owned(),
            ));
        }
    }
    Ok(())
}

struct Builder<'t> {
    parser: Parser<'t, granit_parser::StrInput<'t>>,
    /// Finished nodes with an anchor, and their size.
    anchors: BTreeMap<usize, (Node, Size)>,
    size: Size,
    warnings: Vec<Located>,
}

impl<'t> Builder<'t> {
    fn next(&mut self) -> Result<(Event<'t>, Span), Located> {
        match self.parser.next() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => {
                let at = error.marker();
                let mark = Mark {
                    line: at.line().max(1),
                    column: at.col() + 1,
                };
                Err(Located::at(
                    mark,
                    format!("not valid YAML: {}", error.info()),
                ))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Node, Located> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                Event::DocumentStart(..) if root.is_some() => {
                    let message = "only one document is possible in a file".to_owned();
                    return Err(Located::at(Mark::of(&span), message));
                }
                Event::DocumentStart(..) => {
                    let (event, span) = self.next()?;
                    root = Some(self.node(event, &span, 0)?);
                }
                _ => {
                    return Err(Located::at(
                        Mark::of(&span),
                        "unexpected content".to_owned(),
                    ));
                }
            }
        }
        Ok(root.unwrap_or(Node {
            data: Data::Null,
            mark: Mark { line: 1, column: 1 },
        }))
    }

    fn count(&mut self, more: Size, mark: Mark) -> Result<(), Located> {
        self.size = self.size.plus(more);
        let message = if self.size.nodes > MAX_NODES {
            format!("the file has more than {MAX_NODES} nodes, what aliases repeat included")
        } else if self.size.text > MAX_TEXT {
            format!("the file has more than {MAX_TEXT} bytes, what aliases repeat included")
        } else {
            return Ok(());
        };
        Err(Located::at(mark, message))
    }

    fn warn(&mut self, mark: Mark, message: String) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push(Located::at(mark, message));
        }
    }

    fn node(&mut self, event: Event<'t>, span: &Span, depth: usize) -> Result<Node, Located> {
        let mark = Mark::of(span);
        if depth > MAX_DEPTH {
            return Err(Located::at(
                mark,
                format!("the file is nested deeper than {MAX_DEPTH} levels"),
            ));
        }
        let (data, anchor) = match event {
            Event::Alias(id) => {
                let Some(size) = self.anchors.get(&id).map(|(_, size)| *size) else {
                    let message = "an alias cannot stand inside of what it refers to".to_owned();
                    return Err(Located::at(mark, message));
                };
                // Before the copy, so that a bomb never goes off.
                self.count(size, mark)?;
                let node = self.anchors.get(&id).map(|(node, _)| node.clone());
                return node.ok_or_else(|| Located::at(mark, "unexpected alias".to_owned()));
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.count(Size::of_text(&text), mark)?;
                (self.scalar(&text, style, tag.as_deref(), mark)?, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.count(Size::of_text(""), mark)?;
                check_tag(tag.as_deref(), "seq", mark)?;
                (self.list(depth)?, anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.count(Size::of_text(""), mark)?;
                check_tag(tag.as_deref(), "map", mark)?;
                (self.mapping(depth)?, anchor)
            }
            _ => return Err(Located::at(mark, "unexpected content".to_owned())),
        };
        let node = Node { data, mark };
        if anchor != 0 {
            let size = node.size();
            self.count(size, mark)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(node)
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        mark: Mark,
    ) -> Result<Data, Located> {
        let refused = |Refused(message): Refused| Located::at(mark, message);
        match tag.filter(|tag| !is_non_specific(tag)) {
            Some(tag) => match tag.core_suffix() {
                Some(core) => scalar::tagged(core, text).map_err(refused),
                None => Err(unsupported(tag, mark)),
            },
            None if style == ScalarStyle::Plain => {
                let data = scalar::plain(text).map_err(refused)?;
                if let Some(message) = scalar::surprise(text, &data) {
                    self.warn(mark, message);
                }
                Ok(data)
            }
            None => Ok(Data::Text(text.to_owned())),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Data, Located> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Data::List(items)),
                (event, span) => items.push(self.node(event, &span, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Data, Located> {
        let mut own = Keys::default();
        let mut merged = Keys::default();
        loop {
            let (event, span) = self.next()?;
            let mark = Mark::of(&span);
            let key = match event {
                Event::MappingEnd => break,
                Event::Scalar(ref text, ScalarStyle::Plain, _, None) if text == "<<" => {
                    let (event, span) = self.next()?;
                    let value = self.node(event, &span, depth + 1)?;
                    merge(value, &mut merged)?;
                    continue;
                }
                // The value key of YAML 1.1 is a plain text as a key.
                Event::Scalar(ref text, ScalarStyle::Plain, 0, None) if text == "=" => Node {
                    data: Data::Text("=".to_owned()),
                    mark,
                },
                event => self.node(event, &span, depth + 1)?,
            };
            let Some((text, id)) = key.as_key() else {
                return Err(Located::at(
                    mark,
                    "a key must be a word, not a list or a mapping".to_owned(),
                ));
            };
            let (event, span) = self.next()?;
            let value = self.node(event, &span, depth + 1)?;
            let entry = Entry {
                key: text,
                mark,
                value,
                id,
            };
            if let Some(earlier) = own.put(entry) {
                let (key, lines) = (&earlier.key, [earlier.mark.line, mark.line]);
                let message = format!(
                    "the key `{key}` occurs twice (lines {} and {}); the last one counts",
                    lines[0], lines[1]
                );
                self.warn(mark, message);
            }
        }
        own.add_absent(merged);
        Ok(Data::Map(own.into_entries()))
    }
}

/// Adds what `<<` brings; what is there already wins.
fn merge(value: Node, merged: &mut Keys) -> Result<(), Located> {
    let mark = value.mark;
    let maps = match value.data {
        Data::Map(entries) => vec![entries],
        Data::List(items) => {
            let maps = items.into_iter().map(|item| match item.data {
                Data::Map(entries) => Ok(entries),
                _ => Err(Located::at(
                    item.mark,
                    "`<<` needs mappings to merge".to_owned(),
                )),
            });
            maps.collect::<Result<_, _>>()?
        }
        _ => {
            return Err(Located::at(
                mark,
                "`<<` needs a mapping to merge".to_owned(),
            ));
        }
    };
    for entry in maps.into_iter().flatten() {
        merged.put_absent(entry);
    }
    Ok(())
}

/// `!` alone says no more than that there is a tag.
fn is_non_specific(tag: &Tag) -> bool {
    matches!((tag.handle(), tag.suffix()), ("!", "") | ("", "!"))
}

fn check_tag(tag: Option<&Tag>, expected: &str, mark: Mark) -> Result<(), Located> {
    match tag {
        Some(tag) if !is_non_specific(tag) && !tag.is_yaml_core_schema_tag(expected) => {
            Err(unsupported(tag, mark))
        }
        _ => Ok(()),
    }
}

fn unsupported(tag: &Tag, mark: Mark) -> Located {
    Located::at(
        mark,
        format!("the tag {}{} is not supported", tag.handle(), tag.suffix()),
    )
}
