//! The principal of a client certificate: its subject's distinguished name (RFC 2253, written as by
//! Java's `X500Principal`), or what `ssl.principal.mapping.rules` makes of that (KIP-371).

use std::fmt::Write;
use std::sync::Arc;

use regex::Regex;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// The principal of clients that do not say who they are.
pub const ANONYMOUS: &str = "User:ANONYMOUS";

/// What the broker's records hold of a name, with room for `User:`.
const MAX_NAME_BYTES: usize = 32_000;

/// A rule that cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the rule \"{rule}\" cannot be read: {why}; write DEFAULT or RULE:pattern/replacement/, with L or \
     U behind for lower or upper case"
)]
pub struct RuleError {
    pub rule: String,
    pub why: String,
}

/// Why a good certificate names nobody.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoName {
    #[error("the certificate cannot be read")]
    Unreadable,
    #[error("no rule of ssl.principal.mapping.rules fits {0:?}")]
    NoRule(String),
    #[error("the name in the certificate has {0} bytes, more than a principal may have")]
    TooLong(usize),
}

#[derive(Clone, Debug)]
enum Rule {
    Default,
    Map {
        pattern: Regex,
        replacement: String,
        case: Case,
    },
}

#[derive(Clone, Copy, Debug)]
enum Case {
    Keep,
    Lower,
    Upper,
}

/// The first rule whose pattern fits the whole name decides.
#[derive(Clone, Debug)]
pub struct PrincipalRules(Arc<[Rule]>);

impl PrincipalRules {
    /// Reads `ssl.principal.mapping.rules`. Nothing is `DEFAULT`, as in Kafka.
    pub fn parse(text: &str) -> Result<PrincipalRules, RuleError> {
        let mut rules = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (rule, after) = one_rule(rest)?;
            rules.push(rule);
            rest = after.trim_start();
            rest = match rest.strip_prefix(',') {
                Some(after) => after.trim_start(),
                None if rest.is_empty() => rest,
                None => return Err(bad(text, "a comma goes between rules")),
            };
        }
        if rules.is_empty() {
            rules.push(Rule::Default);
        }
        Ok(PrincipalRules(rules.into()))
    }

    /// The name, without `User:`.
    pub(crate) fn name_of(&self, certificate: &CertificateDer<'_>) -> Result<String, NoName> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| NoName::Unreadable)?;
        let name = distinguished_name(parsed.subject()).ok_or(NoName::Unreadable)?;
        let mapped = self.apply(&name).ok_or(NoName::NoRule(name))?;
        match mapped.len() {
            long if long > MAX_NAME_BYTES => Err(NoName::TooLong(long)),
            _ => Ok(mapped),
        }
    }

    fn apply(&self, name: &str) -> Option<String> {
        self.0.iter().find_map(|rule| match rule {
            Rule::Default => Some(name.to_owned()),
            Rule::Map {
                pattern,
                replacement,
                case,
            } => {
                let groups = pattern.captures(name)?;
                let mut mapped = String::new();
                groups.expand(replacement, &mut mapped);
                Some(match case {
                    Case::Keep => mapped,
                    Case::Lower => mapped.to_lowercase(),
                    Case::Upper => mapped.to_uppercase(),
                })
            }
        })
    }
}

fn bad(rule: &str, why: impl Into<String>) -> RuleError {
    RuleError {
        rule: rule.to_owned(),
        why: why.into(),
    }
}

fn one_rule(text: &str) -> Result<(Rule, &str), RuleError> {
    if let Some(rest) = text.strip_prefix("DEFAULT") {
        return Ok((Rule::Default, rest));
    }
    let body = (text.strip_prefix("RULE:"))
        .ok_or_else(|| bad(text, "it begins with neither DEFAULT nor RULE:"))?;
    let (pattern, rest) =
        up_to_slash(body).ok_or_else(|| bad(text, "there is no / behind the pattern"))?;
    let (replacement, rest) =
        up_to_slash(rest).ok_or_else(|| bad(text, "there is no / behind the replacement"))?;
    let (case, rest) = match rest.as_bytes().first() {
        Some(b'L') => (Case::Lower, &rest[1..]),
        Some(b'U') => (Case::Upper, &rest[1..]),
        _ => (Case::Keep, rest),
    };
    // By itself first: it must not be able to end the brackets that are put around it.
    Regex::new(pattern).map_err(|e| bad(text, e.to_string()))?;
    // Kafka's patterns fit the whole name or not at all.
    let pattern = Regex::new(&format!("^(?:{pattern})$")).map_err(|e| bad(text, e.to_string()))?;
    let rule = Rule::Map {
        replacement: groups_in_braces(replacement, pattern.captures_len() - 1),
        pattern,
        case,
    };
    Ok((rule, rest))
}

/// Splits at the first `/` that no backslash precedes.
fn up_to_slash(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '/' => return Some((&text[..at], &text[at + 1..])),
            _ => {}
        }
    }
    None
}

/// `$1x` is group 1 and an x in Java, and the group "1x" in Rust: `${1}x` is the same in both. As in
/// Java a further digit belongs to the number while there are so many groups, and as in Kafka the
/// number of a group that is not there stands for itself.
fn groups_in_braces(replacement: &str, groups: usize) -> String {
    let mut out = String::new();
    let mut rest = replacement.chars().peekable();
    while let Some(c) = rest.next() {
        match (c, rest.peek().copied()) {
            ('$', Some(digit)) if digit.is_ascii_digit() => {
                let mut number = digit as usize - '0' as usize;
                rest.next();
                while let Some(further) = rest.peek().and_then(|c| c.to_digit(10)) {
                    let longer = number * 10 + further as usize;
                    if longer > groups {
                        break;
                    }
                    number = longer;
                    rest.next();
                }
                let _cannot_fail = match number <= groups {
                    true => write!(out, "${{{number}}}"),
                    false => write!(out, "$${number}"),
                };
            }
            ('$', _) => out.push_str("$$"),
            ('\\', Some(literal)) => {
                rest.next();
                out.push_str(if literal == '$' { "$$" } else { "" });
                if literal != '$' {
                    out.push(literal);
                }
            }
            (other, _) => out.push(other),
        }
    }
    out
}

/// The keywords that RFC 2253 names; every other attribute shows as its OID with the encoded value.
const KEYWORDS: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

/// `None`: a value is no text.
fn distinguished_name(name: &X509Name<'_>) -> Option<String> {
    let mut parts = Vec::new();
    for set in name.iter() {
        let attributes: Option<Vec<String>> = set.iter().map(attribute).collect();
        parts.push(attributes?.join("+"));
    }
    // From the most special to the most general: the other way round than in the certificate.
    parts.reverse();
    Some(parts.join(","))
}

fn attribute(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let oid = attribute.attr_type().to_id_string();
    match KEYWORDS.iter().find(|(known, _)| *known == oid) {
        Some((_, keyword)) => match text(attribute) {
            Some(text) => Some(format!("{keyword}={}", escaped(&text))),
            None => Some(format!("{keyword}=#{}", hex(attribute)?)),
        },
        None => Some(format!("{oid}=#{}", hex(attribute)?)),
    }
}

/// `None` for kinds of strings that nobody reads as text.
fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    const T61: u32 = 20;
    const BMP: u32 = 30;
    let value = attribute.attr_value();
    match value.header.tag().0 {
        // As Java reads it: Latin-1.
        T61 => Some(value.data.iter().map(|byte| char::from(*byte)).collect()),
        BMP => {
            let pairs = value.data.chunks_exact(2);
            if !pairs.remainder().is_empty() {
                return None;
            }
            let units: Vec<u16> = pairs.map(|b| u16::from_be_bytes([b[0], b[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => attribute.as_str().ok().map(str::to_owned),
    }
}

/// The value as it stands in the certificate (DER).
fn hex(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    let value = attribute.attr_value();
    let mut encoded = vec![u8::try_from(value.header.tag().0).ok()?];
    let length = u32::try_from(value.data.len()).ok()?.to_be_bytes();
    let significant = length.iter().skip_while(|byte| **byte == 0).count();
    match value.data.len() {
        short if short < 128 => encoded.push(short as u8),
        _ => {
            encoded.push(0x80 | significant as u8);
            encoded.extend_from_slice(&length[length.len() - significant..]);
        }
    }
    encoded.extend_from_slice(value.data);
    Some(encoded.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn escaped(value: &str) -> String {
    let mut out = String::new();
    let inner = value.trim_matches(' ');
    // All spaces, or those around the text.
    let begin = value.len() - value.trim_start_matches(' ').len();
    let end = begin + inner.len();
    for (at, c) in value.char_indices() {
        match c {
            '\0' => out.push_str("\\00"),
            ',' | '=' | '+' | '<' | '>' | '#' | ';' | '"' | '\\' => out.extend(['\\', c]),
            ' ' if at < begin || at >= end => out.push_str("\\ "),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(rules: &str, name: &str) -> Option<String> {
        PrincipalRules::parse(rules).unwrap().apply(name)
    }

    #[test]
    fn without_rules_the_name_is_the_principal() {
        for rules in ["", " ", "DEFAULT"] {
            assert_eq!(apply(rules, "CN=a,O=b").as_deref(), Some("CN=a,O=b"));
        }
    }

    #[test]
    fn the_first_rule_that_fits_the_whole_name_decides() {
        let rules =
            "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:CN=(.*?),OU=(.*?),O=.*/$1@$2/L,DEFAULT";
        let of = |name| apply(rules, name).unwrap();
        assert_eq!(of("CN=kafka-1,OU=ServiceUsers,O=Org"), "kafka-1");
        assert_eq!(of("CN=Ann,OU=Adm,O=Org"), "ann@adm");
        assert_eq!(of("CN=Ann"), "CN=Ann");
        assert_eq!(apply("RULE:CN=(a)/$1/U", "CN=a").as_deref(), Some("A"));
        assert_eq!(apply("RULE:CN=(a)/$1x/", "CN=a").as_deref(), Some("ax"));
        assert_eq!(
            apply(r"RULE:CN=a\/b/c\/d/", "CN=a/b").as_deref(),
            Some("c/d")
        );
        assert_eq!(apply("RULE:CN=a/x/", "CN=ab"), None, "no rule, no name");
        assert_eq!(apply("RULE:CN=(a)/$1@$4/", "CN=a").as_deref(), Some("a@$4"));
        assert_eq!(apply("RULE:CN=(a)/$12/", "CN=a").as_deref(), Some("a2"));
    }

    #[test]
    fn a_rule_that_cannot_be_read_is_refused() {
        for text in [
            "OTHER",
            "RULE:a",
            "RULE:a/b",
            "RULE:(/b/",
            "RULE:a)|(b/x/",
            "DEFAULT DEFAULT",
        ] {
            let error = PrincipalRules::parse(text).unwrap_err();
            assert!(
                error.to_string().contains("RULE:pattern/replacement/"),
                "{error}"
            );
        }
    }

    #[test]
    fn values_are_escaped_as_in_rfc_2253() {
        assert_eq!(
            escaped("Sue, Grabbit \"and\" Runn"),
            "Sue\\, Grabbit \\\"and\\\" Runn"
        );
        assert_eq!(escaped(" x "), "\\ x\\ ");
        assert_eq!(escaped("#x#"), "\\#x\\#");
        assert_eq!(escaped("a=b"), "a\\=b");
        assert_eq!(escaped("  "), "\\ \\ ");
    }
}
