//! Records in a fetched answer, opened as far as they are to be compared.

use crate::tree::Tree;

const HEADER_BYTES: usize = 61;

/// Puts lists of batches in the place of `records` bytes, at any depth.
pub fn expand(tree: &mut Tree) {
    match tree {
        Tree::List(elements) => elements.iter_mut().for_each(expand),
        Tree::Struct(fields) => {
            for (name, field) in fields {
                match field {
                    Tree::Bytes(bytes) if name == "records" => *field = batches(bytes),
                    _ => expand(field),
                }
            }
        }
        _ => {}
    }
}

fn batches(mut bytes: &[u8]) -> Tree {
    let mut batches = Vec::new();
    while bytes.len() >= HEADER_BYTES {
        let length = 12 + usize::try_from(number(bytes, 8, 4)).unwrap_or(0);
        if length < HEADER_BYTES || length > bytes.len() {
            break;
        }
        batches.push(batch(&bytes[..length]));
        bytes = &bytes[length..];
    }
    if !bytes.is_empty() {
        // Brokers may cut the last batch anywhere; where is not compared.
        batches.push(Tree::Struct(vec![leaf("base_offset", "a cut batch")]));
    }
    Tree::List(batches)
}

fn batch(bytes: &[u8]) -> Tree {
    let crc = i64::from(crc32c::crc32c(&bytes[21..]) as i32);
    let right = crc == number(bytes, 17, 4);
    let records: String = bytes[HEADER_BYTES..]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let mut fields = vec![
        leaf("base_offset", number(bytes, 0, 8)),
        leaf("partition_leader_epoch", number(bytes, 12, 4)),
        leaf("magic", bytes[16]),
        leaf("crc_is_right", right),
        leaf("attributes", format!("{:#06x}", number(bytes, 21, 2))),
        leaf("last_offset_delta", number(bytes, 23, 4)),
        leaf("batch_base_timestamp", number(bytes, 27, 8)),
        leaf("batch_max_timestamp", number(bytes, 35, 8)),
        leaf("producer_id", number(bytes, 43, 8)),
        leaf("producer_epoch", number(bytes, 51, 2)),
        leaf("base_sequence", number(bytes, 53, 4)),
        leaf("record_count", number(bytes, 57, 4)),
    ];
    // Long ones by a checksum: what is printed stays readable.
    fields.push(match records.len() {
        0..=400 => leaf("record_bytes", records),
        long => leaf(
            "record_bytes",
            format!(
                "{long} digits, crc {:08x}",
                crc32c::crc32c(records.as_bytes())
            ),
        ),
    });
    Tree::Struct(fields)
}

fn leaf(name: &str, value: impl ToString) -> (String, Tree) {
    (name.to_owned(), Tree::Leaf(value.to_string()))
}

/// A big-endian signed number of `size` bytes.
fn number(bytes: &[u8], at: usize, size: usize) -> i64 {
    let first = i64::from(bytes[at] as i8);
    bytes[at + 1..at + size]
        .iter()
        .fold(first, |n, b| (n << 8) | i64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_and_a_cut_one() {
        let mut bytes = tidemark_record_batch::BatchBuilder::new(5)
            .push(None, Some(b"x"))
            .build();
        let whole = bytes.clone();
        bytes.extend_from_slice(&whole[..40]);
        let mut tree = Tree::Struct(vec![("records".to_owned(), Tree::Bytes(bytes))]);
        expand(&mut tree);
        let batches = tree.list("records");
        assert_eq!(batches.len(), 2);
        assert_eq!(batches[0].number("producer_id"), Some(-1));
        assert_eq!(
            batches[0].field("crc_is_right"),
            Some(&Tree::Leaf("true".to_owned()))
        );
        assert_eq!(batches[0].number("batch_base_timestamp"), Some(5));
    }
}
