//! Answers as trees: what `{:?}` prints of a decoded response, read back.
//!
//! All responses are compared by one piece of code, with the names of their fields, without a
//! second copy of Kafka's schemas.

use anyhow::{Context, Result, bail, ensure};

/// A response, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Tree {
    Null,
    /// A number, a boolean, a UUID, a string.
    Leaf(String),
    Bytes(Vec<u8>),
    List(Vec<Tree>),
    Struct(Vec<(String, Tree)>),
}

impl Tree {
    /// Reads what derived `Debug` prints in one line.
    pub fn parse(debug: &str) -> Result<Tree> {
        let mut reader = Reader { rest: debug };
        let tree = reader.value()?;
        ensure!(reader.rest.is_empty(), "left over: {}", reader.rest);
        Ok(tree)
    }

    /// The field of a struct.
    pub fn field(&self, name: &str) -> Option<&Tree> {
        match self {
            Tree::Struct(fields) => fields.iter().find(|(n, _)| n == name).map(|(_, t)| t),
            _ => None,
        }
    }

    /// A leaf's text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Tree::Leaf(text) => Some(text),
            _ => None,
        }
    }

    /// A field as a number.
    pub fn number(&self, name: &str) -> Option<i64> {
        self.field(name)?.text()?.parse().ok()
    }

    /// The elements of a list that is a field.
    pub fn list(&self, name: &str) -> &[Tree] {
        match self.field(name) {
            Some(Tree::List(elements)) => elements,
            _ => &[],
        }
    }

    /// Every field whose name ends in `error_code`, at any depth.
    pub fn error_codes(&self) -> Vec<i64> {
        let mut codes = Vec::new();
        self.collect_error_codes(&mut codes);
        codes
    }

    fn collect_error_codes(&self, codes: &mut Vec<i64>) {
        match self {
            Tree::List(elements) => elements.iter().for_each(|e| e.collect_error_codes(codes)),
            Tree::Struct(fields) => {
                for (name, field) in fields {
                    if name.ends_with("error_code") {
                        codes.extend(field.text().and_then(|t| t.parse::<i64>().ok()));
                    }
                    field.collect_error_codes(codes);
                }
            }
            _ => {}
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn eat(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn need(&mut self, token: &str) -> Result<()> {
        ensure!(self.eat(token), "{token:?} expected at {:.40}", self.rest);
        Ok(())
    }

    fn word(&mut self) -> &str {
        let end = self
            .rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c)))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn value(&mut self) -> Result<Tree> {
        if self.rest.starts_with('"') {
            return Ok(Tree::Leaf(
                String::from_utf8_lossy(&self.quoted()?).into_owned(),
            ));
        }
        if self.rest.starts_with("b\"") {
            self.need("b")?;
            return Ok(Tree::Bytes(self.quoted()?));
        }
        if self.eat("[") {
            return self.list();
        }
        if self.eat("{") {
            return self.map();
        }
        let word = self.word().to_owned();
        ensure!(!word.is_empty(), "a value expected at {:.40}", self.rest);
        if self.eat("(") {
            let inner = self.value()?;
            self.need(")")?;
            return Ok(inner);
        }
        if self.eat(" { ") {
            return self.fields();
        }
        Ok(if word == "None" {
            Tree::Null
        } else {
            Tree::Leaf(word)
        })
    }

    fn list(&mut self) -> Result<Tree> {
        let mut elements = Vec::new();
        while !self.eat("]") {
            elements.push(self.value()?);
            self.eat(", ");
        }
        Ok(Tree::List(elements))
    }

    /// A map, as a struct whose fields are its keys.
    fn map(&mut self) -> Result<Tree> {
        let mut fields = Vec::new();
        while !self.eat("}") {
            let key = self.value()?;
            self.need(": ")?;
            fields.push((key.text().unwrap_or("?").to_owned(), self.value()?));
            self.eat(", ");
        }
        Ok(Tree::Struct(fields))
    }

    fn fields(&mut self) -> Result<Tree> {
        let mut fields = Vec::new();
        while !self.eat("}") {
            let name = self.word().to_owned();
            self.need(": ")?;
            let value = self.value()?;
            // Which tags a response carries beyond its schema; hardly ever any.
            let nothing = name == "unknown_tagged_fields" && value == Tree::Struct(Vec::new());
            if !nothing {
                fields.push((name, value));
            }
            self.eat(", ");
            self.eat(" ");
        }
        Ok(Tree::Struct(fields))
    }

    /// What is between quotes, with escapes as Rust prints them.
    fn quoted(&mut self) -> Result<Vec<u8>> {
        self.need("\"")?;
        let mut out = Vec::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            if c == '"' {
                self.rest = &self.rest[at + 1..];
                return Ok(out);
            }
            if c != '\\' {
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            let (_, escape) = chars.next().context("an escape ends early")?;
            match escape {
                'n' => out.push(b'\n'),
                'r' => out.push(b'\r'),
                't' => out.push(b'\t'),
                '0' => out.push(0),
                '\\' | '"' | '\'' => out.push(escape as u8),
                'x' => {
                    let hex: String = chars.by_ref().take(2).map(|(_, c)| c).collect();
                    out.push(u8::from_str_radix(&hex, 16)?);
                }
                'u' => {
                    let hex: String = chars
                        .by_ref()
                        .skip(1)
                        .map(|(_, c)| c)
                        .take_while(|c| *c != '}')
                        .collect();
                    let c = char::from_u32(u32::from_str_radix(&hex, 16)?).context("no char")?;
                    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                }
                _ => bail!("escape \\{escape}"),
            }
        }
        bail!("a quote is not closed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    #[expect(dead_code, reason = "printed, not read")]
    struct Part {
        name: Option<String>,
        error_code: i16,
        list: Vec<i32>,
        none: Option<i32>,
        bytes: bytes::Bytes,
        unknown_tagged_fields: std::collections::BTreeMap<i32, bytes::Bytes>,
    }

    #[test]
    fn what_debug_prints_is_read_back() {
        let part = Part {
            name: Some("a \"b\"\n\u{7f}ü".to_owned()),
            error_code: -1,
            list: vec![1, -2],
            none: None,
            bytes: bytes::Bytes::from_static(b"\x00\xff'\"x"),
            unknown_tagged_fields: Default::default(),
        };
        let tree = Tree::parse(&format!("{part:?}")).expect("it parses");
        assert_eq!(
            tree.field("name"),
            Some(&Tree::Leaf("a \"b\"\n\u{7f}ü".to_owned()))
        );
        assert_eq!(tree.number("error_code"), Some(-1));
        assert_eq!(tree.list("list").len(), 2);
        assert_eq!(tree.field("none"), Some(&Tree::Null));
        assert_eq!(
            tree.field("bytes"),
            Some(&Tree::Bytes(b"\x00\xff'\"x".to_vec()))
        );
        assert_eq!(tree.field("unknown_tagged_fields"), None);
        assert_eq!(tree.error_codes(), [-1]);
    }
}
