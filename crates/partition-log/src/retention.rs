//! Which segments are old enough, or too many: `retention.ms` and `retention.bytes`.

use crate::segment::SegmentState;
use crate::{PartitionLog, Version};

/// What a topic with `cleanup.policy=delete` says of its old data. `None` is for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RetentionRules {
    /// `retention.ms`: after a segment's largest timestamp.
    pub retention_ms: Option<i64>,
    /// `retention.bytes`: what stays at least.
    pub retention_bytes: Option<u64>,
}

/// A segment, the last one with the tail behind it.
#[derive(Clone, Copy)]
struct Piece {
    end_offset: i64,
    bytes: u64,
    /// Its newest record's, by the clock of who wrote it; without timestamps when it was written.
    newest_ms: i64,
}

impl Piece {
    fn of(segment: &SegmentState) -> Piece {
        Piece {
            end_offset: segment.next_offset,
            bytes: segment.log_bytes,
            newest_ms: match segment.max_timestamp {
                0.. => segment.max_timestamp,
                _ => segment.last_tick.alignment_ms(),
            },
        }
    }
}

impl PartitionLog {
    /// The first offset that stays, at `now_ms` by the wall clock and as of a published version;
    /// `None` when everything does.
    ///
    /// As in Kafka whole segments go, the oldest first, up to the first that stays; the last one,
    /// which is still written to, when all of it is due. Nothing at or after the last stable offset
    /// goes, so that what an open transaction wrote stays until it has ended.
    pub fn retention_point(
        &self,
        version: &Version,
        now_ms: i64,
        rules: &RetentionRules,
    ) -> Option<i64> {
        if *rules == RetentionRules::default() {
            return None;
        }
        let pieces = self.pieces(version.log_start_offset);
        let mut left_bytes: u64 = pieces.iter().map(|piece| piece.bytes).sum();
        let mut point = None;
        for piece in pieces {
            if piece.end_offset > version.last_stable_offset {
                break;
            }
            left_bytes -= piece.bytes;
            let too_many = rules.retention_bytes.is_some_and(|keep| left_bytes >= keep);
            let too_old = rules
                .retention_ms
                .is_some_and(|keep_ms| now_ms.saturating_sub(piece.newest_ms) > keep_ms);
            if !too_many && !too_old {
                break;
            }
            point = Some(piece.end_offset);
        }
        point.filter(|point| *point > version.log_start_offset)
    }

    /// Bytes of the batches from an offset on, counted by whole segments.
    pub fn bytes_from(&self, log_start_offset: i64) -> u64 {
        let pieces = self.pieces(log_start_offset);
        pieces.iter().map(|piece| piece.bytes).sum()
    }

    fn pieces(&self, log_start_offset: i64) -> Vec<Piece> {
        let inner = self.lock();
        let mut pieces: Vec<Piece> = (inner.segments.iter())
            .map(|slot| Piece::of(&slot.written))
            .filter(|piece| piece.end_offset > log_start_offset)
            .collect();
        let of_tail = inner.tail.iter().map(|batch| Piece {
            end_offset: batch.last_offset + 1,
            bytes: batch.bytes.len() as u64,
            newest_ms: match batch.meta.max_timestamp {
                0.. => batch.meta.max_timestamp,
                _ => batch.tick.alignment_ms(),
            },
        });
        let tail = of_tail.reduce(Piece::followed_by);
        match (pieces.last_mut(), tail) {
            (Some(last), Some(tail)) => *last = last.followed_by(tail),
            (None, Some(tail)) => pieces.push(tail),
            (_, None) => {}
        }
        pieces
    }
}

impl Piece {
    fn followed_by(self, next: Piece) -> Piece {
        Piece {
            end_offset: next.end_offset,
            bytes: self.bytes + next.bytes,
            newest_ms: self.newest_ms.max(next.newest_ms),
        }
    }
}
