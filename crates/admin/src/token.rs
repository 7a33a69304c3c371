//! The token that the admin endpoint may ask for.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Digest, SHA256, digest};

const SCHEME: &[u8] = b"Bearer ";
/// Shorter ones could be tried out.
const MIN_CHARS: usize = 16;

/// What a request has to bring. Its digest is kept, and nothing shows it.
pub struct Token(Digest);

impl Token {
    /// Of a file's text.
    ///
    /// Errors: what is wrong with it, without the text.
    pub fn new(text: &str) -> Result<Token, String> {
        let token = text.trim();
        if token.len() < MIN_CHARS || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "it holds no token: one line of at least {MIN_CHARS} letters and digits, as openssl \
                 rand -hex 32 prints it"
            ));
        }
        Ok(Token(digest(&SHA256, token.as_bytes())))
    }

    /// Whether a header `Authorization` brings it. Takes as long whatever is wrong with it.
    pub(crate) fn is(&self, header: Option<&[u8]>) -> bool {
        let given = header.and_then(|header| header.strip_prefix(SCHEME));
        let given = digest(&SHA256, given.unwrap_or_default());
        verify_slices_are_equal(self.0.as_ref(), given.as_ref()).is_ok()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}
