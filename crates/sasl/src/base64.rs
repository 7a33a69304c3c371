//! Base64 (RFC 4648, section 4) as SCRAM writes it: padded, and read strictly, so that a text has one
//! meaning and a meaning one text.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// `None` for anything that [`encode`] does not write.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_written_so_is_refused() {
        for bad in [
            "Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "Zg==Zg==", "Zm9v\n", "Zm-v", "=m9v",
            "Zé8",
        ] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn a_text_that_reads_is_the_one_that_is_written(text in "[A-Za-z0-9+/=]{0,12}") {
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
