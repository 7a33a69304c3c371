//! PLAIN (RFC 4616): a user and a password in one message.

use std::fmt;

use crate::Refusal;

/// The longest message: three texts of 255 characters of four bytes, which a server must accept, and
/// the two bytes between them.
pub const MAX_MESSAGE_BYTES: usize = 3 * 255 * 4 + 2;

/// What Kafka tells a client whose password is not that of the user, or whose user does not exist.
pub const WRONG: &str = "Authentication failed: Invalid username or password";

/// Who a client says it is, and its password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    pub user: &'a str,
    pub password: &'a str,
    /// An identity was asked for that is not the user. To be refused once the password has turned out
    /// to be right, as Kafka does.
    pub other_identity: bool,
}

impl fmt::Debug for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Reads a client's message. The password is not checked: only the caller knows the user's.
pub fn parse(message: &[u8]) -> Result<Claim<'_>, Refusal> {
    if message.len() > MAX_MESSAGE_BYTES {
        return Err(Refusal::Message("PLAIN: the message is too long"));
    }
    let text = std::str::from_utf8(message)
        .map_err(|_| Refusal::Message("PLAIN: the message is not UTF-8"))?;
    let mut parts = text.split('\0');
    let (Some(identity), Some(user), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Refusal::Message("PLAIN: the message has not three parts"));
    };
    if user.is_empty() {
        return Err(Refusal::Message("PLAIN: no user"));
    }
    if password.is_empty() {
        return Err(Refusal::Message("PLAIN: no password"));
    }
    Ok(Claim {
        user,
        password,
        other_identity: !identity.is_empty() && identity != user,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4616() {
        let claim = parse(b"\0tim\0tanstaaftanstaaf").unwrap();
        assert_eq!((claim.user, claim.password), ("tim", "tanstaaftanstaaf"));
        assert!(!claim.other_identity);
        // Kurt may not act for Ursel, as Kafka knows no such right.
        let claim = parse(b"Ursel\0Kurt\0xipj3plmq").unwrap();
        assert_eq!(claim.user, "Kurt");
        assert!(claim.other_identity);
    }

    #[test]
    fn one_may_act_for_oneself() {
        assert!(!parse(b"tim\0tim\0secret").unwrap().other_identity);
        assert!(parse(b"Tim\0tim\0secret").unwrap().other_identity);
    }

    #[test]
    fn anything_else_is_refused() {
        let long = [b"\0u\0".as_slice(), &[b'x'; MAX_MESSAGE_BYTES]].concat();
        for bad in [
            b"".as_slice(),
            b"\0",
            b"\0\0",
            b"tim",
            b"\0tim",
            b"\0tim\0",
            b"\0\0secret",
            b"tim\0\0secret",
            b"\0tim\0secret\0",
            b"\0tim\0sec\0ret",
            b"\0t\xff\0secret",
            &long,
        ] {
            assert!(matches!(parse(bad), Err(Refusal::Message(_))), "{bad:?}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let claim = parse(b"\0tim\0tanstaaftanstaaf").unwrap();
        assert!(!format!("{claim:?}").contains("tanstaaf"));
    }
}
