//! The chain: each line ends with the SHA-256 of the hash before it and of the line's own text.
//!
//! `{"seq":7, ... ,"hash":"<64 hex digits>"}`: take `,"hash":"..."` out again, put the former line's
//! hash in front as text, and SHA-256 of that must be the hash. A shell can do it:
//! `printf '%s%s' "$before" "$body" | sha256sum`.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};

/// A link of the chain.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Link([u8; 32]);

impl Link {
    /// What the first line of all follows.
    pub const START: Link = Link([0; 32]);

    /// Of 64 hex digits, as it is shown.
    pub fn parse(text: &str) -> Option<Link> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut link = [0; 32];
        for (byte, pair) in link.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |c: u8| match c {
                b'0'..=b'9' => Some(c - b'0'),
                b'a'..=b'f' => Some(c - b'a' + 10),
                _ => None,
            };
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Link(link))
    }

    /// Its first 48 bits: what a gauge can show without loss.
    pub fn prefix(&self) -> u64 {
        self.0[..6]
            .iter()
            .fold(0, |all, byte| all << 8 | u64::from(*byte))
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// SHA-256 in pieces.
#[derive(Clone)]
pub(crate) struct Sha256(Context);

impl Sha256 {
    pub(crate) fn new() -> Sha256 {
        Sha256(Context::new(&SHA256))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Link {
        let digest = self.0.finish();
        let mut link = [0; 32];
        link.copy_from_slice(digest.as_ref());
        Link(link)
    }
}

const BEFORE_HASH: &str = r#","hash":""#;
const AFTER_HASH: &str = r#""}"#;
const SUFFIX: usize = BEFORE_HASH.len() + 64 + AFTER_HASH.len();

fn link(before: &Link, body: &[&[u8]]) -> Link {
    let mut sha = Sha256::new();
    sha.add(before.to_string().as_bytes());
    body.iter().for_each(|piece| sha.add(piece));
    sha.finish()
}

/// Appends the line of a JSON object (`{...}` with at least one field) and its newline; the chain's
/// new end.
pub(crate) fn seal(before: &Link, body: &str, out: &mut Vec<u8>) -> Link {
    let link = link(before, &[body.as_bytes()]);
    out.extend_from_slice(&body.as_bytes()[..body.len() - 1]);
    out.extend_from_slice(BEFORE_HASH.as_bytes());
    out.extend_from_slice(link.to_string().as_bytes());
    out.extend_from_slice(AFTER_HASH.as_bytes());
    out.push(b'\n');
    link
}

/// A line (without its newline), taken apart.
pub(crate) struct Line<'a> {
    body: &'a [u8],
    /// The hash that it bears.
    pub(crate) link: Link,
}

impl<'a> Line<'a> {
    /// `None`: it is no line of an audit log.
    pub(crate) fn split(line: &'a [u8]) -> Option<Line<'a>> {
        let at = line.len().checked_sub(SUFFIX)?;
        let (body, suffix) = line.split_at(at);
        let hash = suffix.strip_prefix(BEFORE_HASH.as_bytes())?;
        let hash = hash.strip_suffix(AFTER_HASH.as_bytes())?;
        let link = Link::parse(std::str::from_utf8(hash).ok()?)?;
        body.starts_with(b"{").then_some(Line { body, link })
    }

    pub(crate) fn follows(&self, before: &Link) -> bool {
        link(before, &[self.body, b"}"]) == self.link
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_follows_the_one_before_and_nothing_else() {
        let mut out = Vec::new();
        let first = seal(&Link::START, r#"{"seq":1}"#, &mut out);
        let second = seal(&first, r#"{"seq":2}"#, &mut out);
        let lines: Vec<&[u8]> = out.split(|b| *b == b'\n').collect();
        let line = |n: usize| Line::split(lines[n]).unwrap();
        assert!(line(0).follows(&Link::START) && line(1).follows(&first));
        assert!(!line(1).follows(&Link::START));
        assert_eq!(line(1).link, second);
        assert_eq!(Link::parse(&second.to_string()), Some(second));
        assert!(
            second
                .to_string()
                .starts_with(&format!("{:012x}", second.prefix()))
        );
        // As the shell would do it, from the documented rule.
        let known = "b0a3ea1a0ae0e5be0d1c9b7a5b4b5d5c";
        assert!(Line::split(known.as_bytes()).is_none());
        for byte in 0..lines[1].len() {
            let mut changed = lines[1].to_vec();
            changed[byte] ^= 1;
            let passes = Line::split(&changed).is_some_and(|line| line.follows(&first));
            assert!(!passes, "byte {byte}");
        }
    }
}
