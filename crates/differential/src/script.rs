//! The scripts: one request a line.
//!
//! ```text
//! # a comment
//! init txn=a -> p                                a verb, arguments, a name for what the broker draws
//! produce t/0 txn=a by=p seq=0 v=3,11            sent once for each version
//! end txn=a by=p commit ~retry-of-init           may differ as docs/differences.md says under this id
//! init txn=a by=p times=9 -> p                   nine times, the last answer compared
//! end txn=a by={p,p-1} {commit,abort}            four lines, in this order: the last brace runs fastest
//! block NAME                                     lines up to `end-block`, which are not run here,
//! use NAME txn=a                                 but here, with `a` in the place of each `$txn`
//! ```
//!
//! A value with spaces, or an empty one, is in double quotes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

/// One line of a script.
#[derive(Clone, Debug)]
pub struct Line {
    pub number: usize,
    pub text: String,
    pub verb: String,
    /// Arguments without a name, in order.
    pub words: Vec<String>,
    pub named: BTreeMap<String, String>,
    /// The name after `->`.
    pub bind: Option<String>,
    /// The ids after `~`.
    pub allowed: Vec<String>,
}

/// A script file.
#[derive(Clone, Debug)]
pub struct Script {
    pub name: String,
    pub lines: Vec<Line>,
}

impl Script {
    pub fn parse(name: &str, text: &str) -> Result<Script> {
        let mut lines = Vec::new();
        for (number, line) in blocks_used(name, text)? {
            for line in spread(&line) {
                let parsed = parse_line(number, &line)
                    .with_context(|| format!("{name}.txt line {number}"))?;
                lines.extend(parsed);
            }
        }
        Ok(Script {
            name: name.to_owned(),
            lines,
        })
    }
}

impl Line {
    /// The named argument, if it is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.named.get(name).map(String::as_str)
    }

    /// The named argument, which must be there.
    pub fn need(&self, name: &str) -> Result<&str> {
        self.get(name)
            .with_context(|| format!("{} needs {name}=", self.verb))
    }

    /// The named argument as a number, or `default`.
    pub fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T> {
        match self.get(name) {
            None => Ok(default),
            Some(value) => match value.parse() {
                Ok(number) => Ok(number),
                Err(_) => bail!("{name}={value} is not a number that fits"),
            },
        }
    }

    /// True for `name=1`; without it `default`.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool> {
        Ok(match self.get(name) {
            None => default,
            Some("1") => true,
            Some("0") => false,
            Some(value) => bail!("{name}={value}: 0 or 1"),
        })
    }

    /// True if the word stands among the arguments.
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|w| w == word)
    }
}

/// The numbered lines, with those of a block where it is used. A number is that of where the line is written.
fn blocks_used(name: &str, text: &str) -> Result<Vec<(usize, String)>> {
    let mut blocks: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
    let mut open: Option<String> = None;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let at = || format!("{name}.txt line {number}");
        let mut words = line.split_whitespace();
        match (words.next(), &open) {
            (Some("end-block"), _) => {
                ensure!(open.take().is_some(), "{}: no block is open", at());
            }
            (_, Some(block)) => {
                let of_block = blocks.get_mut(block).context("an open block is there")?;
                of_block.push((number, line.to_owned()));
            }
            (Some("block"), None) => {
                let block = words.next().with_context(at)?.to_owned();
                let before = blocks.insert(block.clone(), Vec::new());
                ensure!(before.is_none(), "{}: {block} stands twice", at());
                open = Some(block);
            }
            (Some("use"), None) => {
                let block = words.next().with_context(at)?;
                let block = blocks.get(block);
                let block = block.with_context(|| format!("{}: no such block", at()))?;
                let values = values(words).with_context(at)?;
                lines.extend(filled(block, &values).with_context(at)?);
            }
            _ => lines.push((number, line.to_owned())),
        }
    }
    ensure!(open.is_none(), "{name}.txt: a block is not closed");
    Ok(lines)
}

/// The arguments of a `use`, up to a comment.
fn values<'a>(words: impl Iterator<Item = &'a str>) -> Result<BTreeMap<&'a str, &'a str>> {
    let mut values = BTreeMap::new();
    for word in words.take_while(|word| !word.starts_with('#')) {
        let (name, value) = (word.split_once('='))
            .with_context(|| format!("{word} is not an argument: NAME=VALUE"))?;
        let before = values.insert(name, value);
        ensure!(before.is_none(), "{name}= stands twice");
    }
    Ok(values)
}

/// The lines of a block with the values in it; each `$name` has one, and each value a place.
fn filled(
    block: &[(usize, String)],
    values: &BTreeMap<&str, &str>,
) -> Result<Vec<(usize, String)>> {
    let mut unused: BTreeSet<&str> = values.keys().copied().collect();
    let mut lines = Vec::new();
    for (number, line) in block {
        // A name in a comment asks for nothing.
        if line.trim_start().starts_with('#') {
            lines.push((*number, line.clone()));
            continue;
        }
        let mut parts = line.split('$');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let ends = part.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let (name, rest) = part.split_at(ends.unwrap_or(part.len()));
            let value = (values.get(name))
                .with_context(|| format!("${name} in line {number} has no value"))?;
            unused.remove(name);
            filled = filled + value + rest;
        }
        lines.push((*number, filled));
    }
    ensure!(
        unused.is_empty(),
        "the block has no place for {}",
        unused.into_iter().collect::<Vec<_>>().join(", ")
    );
    Ok(lines)
}

/// The lines that a line with braces stands for.
fn spread(line: &str) -> Vec<String> {
    let braces = line
        .split_once('{')
        .and_then(|(head, rest)| Some((head, rest.split_once('}')?)));
    match braces {
        Some((head, (choices, tail))) if !line.trim_start().starts_with('#') => choices
            .split(',')
            .flat_map(|choice| spread(&format!("{head}{choice}{tail}")))
            .collect(),
        _ => vec![line.to_owned()],
    }
}

fn parse_line(number: usize, line: &str) -> Result<Option<Line>> {
    let tokens = tokens(line)?;
    let mut tokens = tokens.into_iter();
    let Some(verb) = tokens.next() else {
        return Ok(None);
    };
    let mut parsed = Line {
        number,
        text: line.trim().to_owned(),
        verb: verb.text,
        words: Vec::new(),
        named: BTreeMap::new(),
        bind: None,
        allowed: Vec::new(),
    };
    while let Some(token) = tokens.next() {
        if token.text == "->" && !token.quoted {
            let name = tokens.next().context("-> needs a name")?;
            parsed.bind = Some(name.text);
        } else if let (Some(id), false) = (token.text.strip_prefix('~'), token.quoted) {
            parsed.allowed.push(id.to_owned());
        } else if let Some(name) = token.name {
            let before = parsed.named.insert(name.clone(), token.text);
            ensure!(before.is_none(), "{name}= stands twice");
        } else {
            parsed.words.push(token.text);
        }
    }
    Ok(Some(parsed))
}

struct Token {
    /// What stands before `=`.
    name: Option<String>,
    text: String,
    quoted: bool,
}

fn tokens(line: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        let name_ends = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_'))
            .unwrap_or(rest.len());
        let mut name = None;
        if name_ends > 0 && rest[name_ends..].starts_with('=') {
            name = Some(rest[..name_ends].to_owned());
            rest = &rest[name_ends + 1..];
        }
        let quoted = rest.starts_with('"');
        let text;
        if quoted {
            let end = rest[1..].find('"').context("a quote is not closed")? + 1;
            text = rest[1..end].to_owned();
            rest = &rest[end + 1..];
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            text = rest[..end].to_owned();
            rest = &rest[end..];
        }
        tokens.push(Token { name, text, quoted });
        rest = rest.trim_start();
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_verb_arguments_binding_and_ids() {
        let script = Script::parse(
            "s",
            "# nothing\n\nproduce t/0 txn=\"\" by=p+1 cfg.cleanup.policy=compact -> q ~one ~two # c\n",
        )
        .expect("it parses");
        let line = &script.lines[0];
        assert_eq!(line.number, 3);
        assert_eq!(line.verb, "produce");
        assert_eq!(line.words, ["t/0"]);
        assert_eq!(line.get("txn"), Some(""));
        assert_eq!(line.get("by"), Some("p+1"));
        assert_eq!(line.get("cfg.cleanup.policy"), Some("compact"));
        assert_eq!(line.bind.as_deref(), Some("q"));
        assert_eq!(line.allowed, ["one", "two"]);
    }

    #[test]
    fn braces_are_spread_in_order() {
        let script =
            Script::parse("s", "end by={p,p-1} {commit,abort}\n# {a,b}\n").expect("it parses");
        let texts: Vec<&str> = script.lines.iter().map(|l| l.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "end by=p commit",
                "end by=p abort",
                "end by=p-1 commit",
                "end by=p-1 abort"
            ]
        );
        assert!(script.lines.iter().all(|line| line.number == 1));
    }

    #[test]
    fn a_block_stands_where_it_is_used() {
        let text = "block b\nend txn=$txn by=$p\nend-block\ninit\nuse b txn=a p=q\nuse b txn=c p=r";
        let script = Script::parse("s", text).expect("it parses");
        let lines: Vec<(usize, &str)> = (script.lines.iter())
            .map(|l| (l.number, l.text.as_str()))
            .collect();
        assert_eq!(
            lines,
            [(4, "init"), (2, "end txn=a by=q"), (2, "end txn=c by=r")]
        );
        assert!(Script::parse("s", "block b").is_err());
        assert!(Script::parse("s", "use b").is_err());
    }

    #[test]
    fn what_a_use_gives_is_what_its_block_asks_for() {
        let refused = |used: &str| {
            let text = format!("block b\nend txn=$txn by=$p\nend-block\n{used}");
            let error = Script::parse("s", &text).expect_err("it does not fit");
            let error = format!("{error:#}");
            assert!(error.starts_with("s.txt line 4: "), "{error}");
            error
        };
        assert!(refused("use b txn=a").contains("$p in line 2 has no value"));
        assert!(refused("use b txn=a p=q r=1").contains("no place for r"));
        assert!(refused("use b txn=a p=q commit").contains("commit is not an argument"));
        assert!(refused("use b txn=a txn=b p=q").contains("txn= stands twice"));
        // A name that begins another is not that other.
        let text =
            "block b\n# $nothing\nend txn=$txn by=$txn2 # c\nend-block\nuse b txn=a txn2=q # why\n";
        let script = Script::parse("s", text).expect("it parses");
        assert_eq!(script.lines[0].text, "end txn=a by=q # c");
        assert!(Script::parse("s", "block b\nend txn=$txn\nend-block\nuse b txn2=q").is_err());
    }

    #[test]
    fn an_open_quote_names_its_line() {
        let error = Script::parse("s", "a\nb x=\"y").expect_err("an open quote");
        assert!(format!("{error:#}").contains("s.txt line 2"));
    }
}
