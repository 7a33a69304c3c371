use tidemark_types::ErrorCode;

use crate::image::MetadataImage;
use crate::record::MetadataRecord;

/// Producer ids `first .. first + count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerIdRange {
    pub first: i64,
    pub count: i64,
}

impl ProducerIdRange {
    /// The first id after the range.
    pub fn end(self) -> i64 {
        self.first.saturating_add(self.count)
    }
}

impl MetadataImage {
    /// The next block of `count` producer ids for a coordinator partition. Its record must be
    /// durable before an id of it is given away, as for every reply.
    ///
    /// Fails only when all 2^63 ids are used up: no later attempt can succeed, so the code is one
    /// that clients do not retry.
    pub fn decide_producer_id_block(
        &self,
        coordinator_partition: i32,
        count: i64,
    ) -> Result<MetadataRecord, ErrorCode> {
        let first = self.next_producer_id();
        if count < 1 || first.checked_add(count).is_none() {
            return Err(ErrorCode::PolicyViolation);
        }
        Ok(MetadataRecord::ProducerIdBlock {
            coordinator_partition,
            first,
            count,
        })
    }
}
