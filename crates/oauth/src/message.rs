//! What a client says (RFC 7628, 3.1), as Kafka reads it:
//!
//! ```text
//! n,a=AUTHZID,^Aauth=Bearer TOKEN^AKEY=VALUE^A^A
//! ```
//!
//! with `a=AUTHZID` and the extensions left out as a rule. A token that is no good is answered with
//! [`FAILURE`]; the client says [`ACKNOWLEDGEMENT`] to it, and then the authentication has failed.

use std::fmt;

use crate::token::Token;

/// The longest message that is looked at.
pub const MAX_BYTES: usize = 8192;

/// What a bad token is answered with: Kafka's text, the same whatever is wrong.
pub const FAILURE: &[u8] = br#"{"status":"invalid_token"}"#;

/// What a client says to [`FAILURE`].
pub const ACKNOWLEDGEMENT: &[u8] = b"\x01";

const SEPARATOR: u8 = 1;

/// What a client asks for. Debug shows neither the token nor the extensions' values.
#[derive(PartialEq, Eq)]
pub struct ClientMessage {
    /// Whom the client wants to act as; it must be the token's own principal (CVE-2017-12610).
    pub authorization_id: Option<String>,
    pub token: Token,
    /// KIP-342: names and values, which Kafka's own validator accepts and makes nothing of.
    pub extensions: Vec<(String, String)>,
}

impl fmt::Debug for ClientMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.extensions.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("ClientMessage")
            .field("authorization_id", &self.authorization_id)
            .field("extensions", &names)
            .finish_non_exhaustive()
    }
}

/// What is wrong with a message. Says nothing of what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    #[error("the message has more than {MAX_BYTES} bytes")]
    TooLong,
    #[error("the message does not begin with n, as one without channel binding does")]
    Header,
    #[error("the authorization id is not written as RFC 5801 says")]
    AuthorizationId,
    #[error(
        "the message is not KEY=VALUE pairs, each with a byte 1 behind it, and one byte 1 more"
    )]
    Pairs,
    #[error("a key comes twice")]
    Twice,
    #[error("there is no key auth")]
    NoToken,
    #[error("the key auth is not the word Bearer and a token")]
    NotBearer,
}

/// Reads a client's message.
pub fn parse(message: &[u8]) -> Result<ClientMessage, MessageError> {
    if message.len() > MAX_BYTES {
        return Err(MessageError::TooLong);
    }
    let rest = message.strip_prefix(b"n,").ok_or(MessageError::Header)?;
    let header_end = rest.iter().position(|&b| b == SEPARATOR);
    let (header, pairs) = rest.split_at(header_end.ok_or(MessageError::Pairs)?);
    let header = header.strip_suffix(b",").ok_or(MessageError::Header)?;
    let authorization_id = match header {
        b"" => None,
        name => Some(saslname(
            name.strip_prefix(b"a=").ok_or(MessageError::Header)?,
        )?),
    };
    // The byte 1 in front of the pairs; the two behind them.
    let pairs = pairs.get(1..).ok_or(MessageError::Pairs)?;
    let pairs = pairs
        .strip_suffix(&[SEPARATOR])
        .ok_or(MessageError::Pairs)?;
    let pairs = match pairs {
        [] => return Err(MessageError::NoToken),
        some => some.strip_suffix(&[SEPARATOR]).ok_or(MessageError::Pairs)?,
    };
    let mut token = None;
    let mut extensions: Vec<(String, String)> = Vec::new();
    for pair in pairs.split(|&b| b == SEPARATOR) {
        let (key, value) = key_and_value(pair)?;
        if key == "auth" {
            if token.replace(bearer(value)?).is_some() {
                return Err(MessageError::Twice);
            }
        } else if extensions.iter().any(|(known, _)| known == key) {
            return Err(MessageError::Twice);
        } else {
            extensions.push((key.to_owned(), value.to_owned()));
        }
    }
    Ok(ClientMessage {
        authorization_id,
        token: token.ok_or(MessageError::NoToken)?,
        extensions,
    })
}

/// A name with `=2C` for a comma and `=3D` for an equals sign.
fn saslname(text: &[u8]) -> Result<String, MessageError> {
    let text = std::str::from_utf8(text).map_err(|_| MessageError::AuthorizationId)?;
    let (mut name, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let (c, used) = match c {
            '=' if rest.starts_with("=2C") => (',', 3),
            '=' if rest.starts_with("=3D") => ('=', 3),
            '=' | ',' | '\0' => return Err(MessageError::AuthorizationId),
            c => (c, c.len_utf8()),
        };
        name.push(c);
        rest = &rest[used..];
    }
    match name.is_empty() {
        true => Err(MessageError::AuthorizationId),
        false => Ok(name),
    }
}

fn key_and_value(pair: &[u8]) -> Result<(&str, &str), MessageError> {
    let pair = std::str::from_utf8(pair).map_err(|_| MessageError::Pairs)?;
    let (key, value) = pair.split_once('=').ok_or(MessageError::Pairs)?;
    let value_byte = |b: u8| matches!(b, 0x20..=0x7E | b'\t' | b'\r' | b'\n');
    let good = !key.is_empty()
        && key.bytes().all(|b| b.is_ascii_alphabetic())
        && !value.is_empty()
        && value.bytes().all(value_byte);
    match good {
        true => Ok((key, value)),
        false => Err(MessageError::Pairs),
    }
}

/// `Bearer TOKEN`, with RFC 6750's characters.
fn bearer(value: &str) -> Result<Token, MessageError> {
    let (scheme, token) = value.split_once(' ').ok_or(MessageError::NotBearer)?;
    let token = token.trim_start_matches(' ');
    let bare = token.trim_end_matches('=');
    let good = scheme.eq_ignore_ascii_case("bearer")
        && !bare.is_empty()
        && bare
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-._~+/".contains(&b));
    match good {
        true => Ok(Token::new(token)),
        false => Err(MessageError::NotBearer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ClientMessage, MessageError> {
        parse(text.as_bytes())
    }

    #[test]
    fn what_stock_clients_send_is_read() {
        let plain = read("n,,\x01auth=Bearer a.b-c_d.e\x01\x01").unwrap();
        assert_eq!(plain.authorization_id, None);
        assert_eq!(plain.token, Token::new("a.b-c_d.e"));
        assert_eq!(plain.extensions, []);

        let full = read("n,a=till=2C7,\x01auth=bearer  x.y.z\x01host=shop\x01traceId=1=2\x01\x01");
        let full = full.unwrap();
        assert_eq!(full.authorization_id.as_deref(), Some("till,7"));
        assert_eq!(full.token, Token::new("x.y.z"));
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            full.extensions,
            [pair("host", "shop"), pair("traceId", "1=2")]
        );
    }

    #[test]
    fn whatever_else_is_sent_is_refused_with_its_reason() {
        use MessageError::*;
        for (text, why) in [
            ("", Header),
            ("p=tls-unique,,\x01auth=Bearer a\x01\x01", Header),
            ("y,,\x01auth=Bearer a\x01\x01", Header),
            ("n,\x01auth=Bearer a\x01\x01", Header),
            ("n,b=x,\x01auth=Bearer a\x01\x01", Header),
            ("n,a=,\x01auth=Bearer a\x01\x01", AuthorizationId),
            ("n,a=x=y,\x01auth=Bearer a\x01\x01", AuthorizationId),
            ("n,,auth=Bearer a", Pairs),
            ("n,,\x01auth=Bearer a", Pairs),
            ("n,,\x01auth=Bearer a\x01", Pairs),
            ("n,,\x01auth\x01\x01", Pairs),
            ("n,,\x01\x01\x01", Pairs),
            ("n,,\x01auth=Bearer a\x01k-1=v\x01\x01", Pairs),
            ("n,,\x01auth=Bearer a\x01key=\x01\x01", Pairs),
            ("n,,\x01auth=Bearer a\x01key=\u{e9}\x01\x01", Pairs),
            ("n,,\x01", Pairs),
            ("n,,\x01\x01", NoToken),
            ("n,,\x01host=shop\x01\x01", NoToken),
            ("n,,\x01auth=Basic a\x01\x01", NotBearer),
            ("n,,\x01auth=Bearer\x01\x01", NotBearer),
            ("n,,\x01auth=Bearer \x01\x01", NotBearer),
            ("n,,\x01auth=Bearer a b\x01\x01", NotBearer),
            ("n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", Twice),
            ("n,,\x01auth=Bearer a\x01k=1\x01k=2\x01\x01", Twice),
        ] {
            assert_eq!(read(text), Err(why), "{text:?}");
        }
        assert_eq!(parse(b"n,,\x01auth=Bearer \xff\x01\x01"), Err(Pairs));
        let long = format!("n,,\x01auth=Bearer {}\x01\x01", "a".repeat(MAX_BYTES));
        assert_eq!(read(&long), Err(TooLong));
    }

    #[test]
    fn a_message_shows_nothing_of_its_token() {
        let message = read("n,,\x01auth=Bearer sesame\x01pin=open\x01\x01").unwrap();
        let shown = format!("{message:?} {:?}", message.token);
        assert!(
            !shown.contains("sesame") && !shown.contains("open"),
            "{shown}"
        );
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_strange(bytes in proptest::collection::vec(0u8..=255, 0..64)) {
            let _ = parse(&bytes);
            let _ = parse(&[b"n,,\x01auth=Bearer ", &bytes[..]].concat());
            let _ = parse(&[b"n,a=", &bytes[..], b",\x01auth=Bearer a\x01\x01"].concat());
        }
    }
}
