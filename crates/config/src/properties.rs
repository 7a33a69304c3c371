//! Reads Java's .properties format, which Kafka's server.properties is in.

/// One assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Property {
    pub(crate) key: String,
    pub(crate) value: String,
    /// The line its key is on, from 1.
    pub(crate) line: usize,
}

/// Every assignment of a file in its order. Every text is a valid file in this format.
pub(crate) fn parse(text: &str) -> Vec<Property> {
    let mut properties = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((n, first)) = lines.next() {
        let start = trim_start(first);
        if start.is_empty() || start.starts_with(['#', '!']) {
            continue;
        }
        // A line that ends in an odd number of backslashes goes on in the next, whose leading
        // blanks do not count.
        let mut logical = start.to_owned();
        while continues(&logical) {
            logical.pop();
            match lines.next() {
                Some((_, next)) => logical.push_str(trim_start(next)),
                None => break,
            }
        }
        let (key, value) = split(&logical);
        properties.push(Property {
            key: unescape(key),
            value: unescape(value),
            line: n + 1,
        });
    }
    properties
}

fn trim_start(line: &str) -> &str {
    line.trim_start_matches([' ', '\t', '\x0c'])
}

fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

/// Splits at the first '=', ':' or blank that is not escaped. Blanks around one '=' or ':' belong
/// to neither side.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.char_indices().find(|(_, c)| {
        let separates = !escaped && matches!(c, '=' | ':' | ' ' | '\t' | '\x0c');
        escaped = !escaped && *c == '\\';
        separates
    });
    let Some((end, _)) = end else {
        return (line, "");
    };
    let rest = trim_start(&line[end..]);
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (&line[..end], trim_start(rest))
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // Java writes characters beyond the basic plane as two \u escapes.
    let mut units: Vec<u16> = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        let plain = match c {
            '\\' => match chars.next() {
                Some('t') => '\t',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('f') => '\x0c',
                Some('u') => {
                    let hex: String = chars.clone().take(4).collect();
                    match u16::from_str_radix(&hex, 16) {
                        Ok(unit)
                            if hex.len() == 4 && hex.bytes().all(|b| b.is_ascii_hexdigit()) =>
                        {
                            units.push(unit);
                            chars.nth(3);
                            continue;
                        }
                        _ => 'u',
                    }
                }
                Some(other) => other,
                None => break,
            },
            c => c,
        };
        out.push_str(&String::from_utf16_lossy(&units));
        units.clear();
        out.push(plain);
    }
    out.push_str(&String::from_utf16_lossy(&units));
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pairs(text: &str) -> Vec<(String, String, usize)> {
        let tuple = |p: Property| (p.key, p.value, p.line);
        parse(text).into_iter().map(tuple).collect()
    }

    #[test]
    fn the_format_is_javas() {
        let cases: &[(&str, &str, &str)] = &[
            ("a=b", "a", "b"),
            ("a = b ", "a", "b "),
            ("a:b", "a", "b"),
            ("a b", "a", "b"),
            ("  a   :  b", "a", "b"),
            ("a", "a", ""),
            ("a=", "a", ""),
            ("a==b", "a", "=b"),
            ("a= b=c:d", "a", "b=c:d"),
            (r"a\=b=c", "a=b", "c"),
            (r"a\ b c", "a b", "c"),
            (r"a=\u00e4\t|\q", "a", "ä\t|q"),
            (r"a=\ud83d\ude00", "a", "😀"),
            (r"a=\u12", "a", "u12"),
            (r"a=b\", "a", "b"),
            (r"a=c:\\dir", "a", r"c:\dir"),
            ("a=#x", "a", "#x"),
        ];
        for (line, key, value) in cases {
            let expected = vec![((*key).to_owned(), (*value).to_owned(), 1)];
            assert_eq!(pairs(line), expected, "{line}");
        }
    }

    #[test]
    fn lines_go_on_and_comments_do_not() {
        let text = "# a comment \\\n! another\r\n\n a = x,\\\n    y,\\\n\tz\nb=1\\\\\nc=2\n";
        let expected = [("a", "x,y,z", 4), ("b", "1\\", 7), ("c", "2", 8)];
        let expected: Vec<_> = expected
            .iter()
            .map(|(k, v, n)| ((*k).to_owned(), (*v).to_owned(), *n))
            .collect();
        assert_eq!(pairs(text), expected);
    }

    proptest! {
        #[test]
        fn no_text_is_refused(text in "[a-z=:\\\\\\n #!u0-9]{0,80}") {
            let _ = parse(&text);
        }
    }
}
