/// The candidate that `typed` most likely meant: the nearest by edit distance, if it is near.
pub(crate) fn nearest<'a>(
    typed: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // A third of the letters wrong is another word.
    let limit = (typed.chars().count() / 4).clamp(1, 4);
    candidates
        .into_iter()
        .map(|candidate| (distance(typed, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Edits that make one string the other: insert, delete, replace, or swap two neighbours.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_edits() {
        let cases = [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "ac", 1),
            ("abc", "acb", 1),
            ("abc", "axc", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ];
        for (a, b, edits) in cases {
            assert_eq!(distance(a, b), edits, "{a} {b}");
            assert_eq!(distance(b, a), edits, "{b} {a}");
        }
    }

    #[test]
    fn only_a_near_word_is_suggested() {
        let keys = ["journal.slot.bytes", "journal.budget.bytes", "tail.bytes"];
        assert_eq!(
            nearest("journal.slots.byte", keys),
            Some("journal.slot.bytes")
        );
        assert_eq!(nearest("tial.bytes", keys), Some("tail.bytes"));
        assert_eq!(nearest("something.else", keys), None);
    }
}
