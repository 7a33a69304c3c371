//! What an unknown user is answered: a salt and an iteration count that look like those of a user.
//!
//! The same each time for one name, because a fresh salt per try would tell that there is no such
//! user; shaped as the real ones are; and no password fits.

use aws_lc_rs::hmac;

use crate::scram::{Credential, Hash, MIN_ITERATIONS};

/// What can be told of a credential from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    pub iterations: u32,
    pub salt: Salt,
}

/// How a salt was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Salt {
    /// As Kafka's tools do: a number of 130 bits in base 36. So does [`salt`].
    Base36,
    /// Any bytes, so many of them.
    Bytes(usize),
}

/// The most letters of a number of 130 bits in base 36; one in a thousand has fewer than 24.
const BASE36_MAX: usize = 26;
const BASE36_MIN: usize = 23;

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            iterations: MIN_ITERATIONS,
            salt: Salt::Base36,
        }
    }
}

impl Shape {
    pub fn of(salt: &[u8], iterations: u32) -> Shape {
        let base36 = |byte: &u8| byte.is_ascii_digit() || byte.is_ascii_lowercase();
        let looks_so = (BASE36_MIN..=BASE36_MAX).contains(&salt.len());
        Shape {
            iterations,
            salt: match looks_so && salt.iter().all(base36) {
                true => Salt::Base36,
                false => Salt::Bytes(salt.len()),
            },
        }
    }
}

/// A salt as Kafka's tools make it, from random bytes.
pub fn salt(random: &[u8; 17]) -> Vec<u8> {
    // 130 bits: sixteen bytes and two bits.
    let mut number = *random;
    number[0] &= 3;
    let mut letters = Vec::with_capacity(BASE36_MAX);
    while number.iter().any(|byte| *byte != 0) {
        let mut remainder = 0u16;
        for byte in &mut number {
            let value = remainder << 8 | u16::from(*byte);
            *byte = u8::try_from(value / 36).expect("the remainder is below 36");
            remainder = value % 36;
        }
        let digit = char::from_digit(u32::from(remainder), 36).expect("it is below 36");
        letters.push(u8::try_from(digit).expect("digits are ASCII"));
    }
    letters.reverse();
    letters
}

/// The credential of a user that does not exist. `secret` is the server's own and stays the same over
/// restarts.
pub fn credential(secret: &[u8], hash: Hash, user: &str, shape: Shape) -> Credential {
    let key = hmac::Key::new(hmac::HMAC_SHA512, secret);
    let derive = |what: &str| {
        let text = format!("{what}\0{}\0{user}", hash.mechanism());
        hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
    };
    let random = derive("salt");
    let salt = match shape.salt {
        Salt::Base36 => salt(random.first_chunk().expect("64 bytes hold 17")),
        Salt::Bytes(count) => (0u32..)
            .flat_map(|n| derive(&format!("salt {n}")))
            .take(count)
            .collect(),
    };
    let mut stored_key = derive("stored key");
    let mut server_key = derive("server key");
    stored_key.truncate(hash.output_bytes());
    server_key.truncate(hash.output_bytes());
    Credential {
        salt,
        iterations: shape.iterations,
        stored_key,
        server_key,
    }
}
