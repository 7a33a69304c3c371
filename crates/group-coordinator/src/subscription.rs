//! The one thing the broker reads of a consumer's own metadata: the topics it subscribes to.
//!
//! The consumer protocol's subscription begins in every version as in version 0: version, count of
//! topics, names. What follows is the assignor's.

/// The topics of a subscription; `None` if the bytes are none.
pub(crate) fn topics(metadata: &[u8]) -> Option<Vec<&str>> {
    let (_version, rest) = metadata.split_first_chunk::<2>()?;
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    // The count is a claim: nothing is reserved by it.
    let mut topics = Vec::new();
    for _ in 0..i32::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
        let name;
        (name, rest) = after.split_at_checked(length)?;
        topics.push(std::str::from_utf8(name).ok()?);
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use super::topics;

    #[test]
    fn a_subscription_of_any_version_names_its_topics() {
        let cases: [(&[u8], Option<&[&str]>); 6] = [
            (
                b"\0\x03\0\0\0\x02\0\x01a\0\x02bcand more",
                Some(&["a", "bc"]),
            ),
            (b"\0\0\0\0\0\0", Some(&[])),
            (b"\0\0\xff\xff\xff\xff", Some(&[])),
            (b"\0\0\x7f\xff\xff\xff\0\x01a", None),
            (b"\0\0\0\0\0\x01\xff\xff", None),
            (b"", None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(topics(bytes).as_deref(), expected, "{bytes:?}");
        }
    }
}
