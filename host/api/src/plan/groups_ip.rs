//! `${{ groups[i].nodes[j].IP_ADDRESS }}`: addresses of the other machines of a run, known only when they are there.

/// Which numbers a reference counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Member {
    /// Nodes of a task.
    Nodes,
    /// Replicas of a service.
    Replicas,
}

impl Member {
    const fn word(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Replicas => "replicas",
        }
    }
}

/// A reference to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupReference {
    /// Position of the group.
    pub group: usize,
    /// What is counted.
    pub member: Member,
    /// Position of the node or replica in it.
    pub number: usize,
}

/// Why a reference has no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadGroupReference {
    /// It is not written as it should be.
    #[error(
        "`{0}` is not a reference to an address; write `groups[0].nodes[0].IP_ADDRESS` in tasks and `groups[0].replicas[0].IP_ADDRESS` in services"
    )]
    Malformed(String),
    /// It is of the other type of run.
    #[error("`{reference}` does not fit here; use `{member}`")]
    Member {
        /// The reference.
        reference: String,
        /// The member that fits.
        member: &'static str,
    },
    /// There is no such machine for sure.
    #[error("`{0}` is out of range: there is no such group, or it may have fewer machines")]
    OutOfRange(String),
    /// The machine has no address yet.
    #[error("the address of `{0}` is not known yet")]
    Unknown(String),
}

impl GroupReference {
    /// Reads the text between the braces, without spaces around.
    pub fn parse(text: &str) -> Option<Self> {
        let (group, rest) = text.strip_prefix("groups[")?.split_once("].")?;
        let (member, rest) = rest.split_once('[')?;
        let number = rest.strip_suffix("].IP_ADDRESS")?;
        let member = match member {
            "nodes" => Member::Nodes,
            "replicas" => Member::Replicas,
            _ => return None,
        };
        let count = |digits: &str| {
            let only_digits = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit());
            digits.parse().ok().filter(|_| only_digits)
        };
        Some(Self {
            group: count(group)?,
            member,
            number: count(number)?,
        })
    }
}

/// One piece of a text: as it is, or what stands between the braces of a reference that starts with `groups`.
enum Piece<'t> {
    Verbatim(&'t str),
    Reference(&'t str),
}

/// Splits a text. What follows `$$` is no reference, nor is anything of another namespace.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let (mut from, mut search) = (0, 0);
    while let Some(at) = text
        .get(search..)
        .and_then(|tail| tail.find("${{"))
        .map(|at| at + search)
    {
        let inner_at = at + 3;
        let escaped = text.get(..at).is_some_and(|before| before.ends_with('$'));
        let end = text
            .get(inner_at..)
            .and_then(|tail| tail.find("}}"))
            .map(|end| end + inner_at);
        let Some(end) = end else { break };
        let inner = text.get(inner_at..end).unwrap_or_default().trim();
        if !escaped && inner.starts_with("groups") {
            pieces.push(Piece::Verbatim(text.get(from..at).unwrap_or_default()));
            pieces.push(Piece::Reference(inner));
            from = end + 2;
        }
        search = end + 2;
    }
    pieces.push(Piece::Verbatim(text.get(from..).unwrap_or_default()));
    pieces
}

fn checked(text: &str, member: Member) -> Result<GroupReference, BadGroupReference> {
    let reference =
        GroupReference::parse(text).ok_or_else(|| BadGroupReference::Malformed(text.to_owned()))?;
    if reference.member != member {
        return Err(BadGroupReference::Member {
            reference: text.to_owned(),
            member: member.word(),
        });
    }
    Ok(reference)
}

/// Whether a text has references to addresses.
pub fn has_references(text: &str) -> bool {
    pieces(text)
        .iter()
        .any(|piece| matches!(piece, Piece::Reference(_)))
}

/// Checks that all references of a text are to machines that will exist; `counts` has the least number in each group.
///
/// # Errors
/// The first reference that is malformed, of the other type of run, or out of range.
pub fn check(text: &str, member: Member, counts: &[usize]) -> Result<(), BadGroupReference> {
    for piece in pieces(text) {
        if let Piece::Reference(inner) = piece {
            let reference = checked(inner, member)?;
            if counts
                .get(reference.group)
                .is_none_or(|count| reference.number >= *count)
            {
                return Err(BadGroupReference::OutOfRange(inner.to_owned()));
            }
        }
    }
    Ok(())
}

/// Puts addresses into a text; `addresses` has those of each group, empty if not known yet.
///
/// # Errors
/// As [`check`], and [`BadGroupReference::Unknown`] if the job has to wait.
pub fn substitute(
    text: &str,
    member: Member,
    addresses: &[Vec<String>],
) -> Result<String, BadGroupReference> {
    let mut out = String::with_capacity(text.len());
    for piece in pieces(text) {
        match piece {
            Piece::Verbatim(part) => out.push_str(part),
            Piece::Reference(inner) => {
                let reference = checked(inner, member)?;
                let address = addresses
                    .get(reference.group)
                    .and_then(|g| g.get(reference.number));
                match address.map(String::as_str) {
                    None => return Err(BadGroupReference::OutOfRange(inner.to_owned())),
                    Some("") => return Err(BadGroupReference::Unknown(inner.to_owned())),
                    Some(address) => out.push_str(address),
                }
            }
        }
    }
    Ok(out)
}
