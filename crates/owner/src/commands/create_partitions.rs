//! CreatePartitions: topics get more partitions. What is enrolled or committed stays as it is, unless
//! the operation is exclusive.

use tidemark_metadata::Refusal;
use tidemark_types::ErrorCode;

use crate::Owner;
use crate::command::{Now, Step};
use crate::commands::exclusive::{Cuts, ExclusiveOperation};

/// A topic's new partition count.
#[derive(Clone, Debug)]
pub struct GrowTopic {
    pub name: String,
    pub count: i32,
    /// The replicas of each partition that is added, if they were chosen by hand.
    pub assignments: Option<Vec<Vec<i32>>>,
}

/// Each topic is named at most once.
#[derive(Clone, Debug)]
pub struct CreatePartitions {
    pub topics: Vec<GrowTopic>,
    pub validate_only: bool,
}

impl Owner {
    /// One result per topic, in the order of the request.
    pub(crate) fn create_partitions(
        &mut self,
        request: CreatePartitions,
        now: &Now<'_>,
        step: &mut Step,
    ) -> Vec<Result<(), Refusal>> {
        let mut draft = self.begin(now);
        let mut cuts = Cuts::default();
        let grown = request
            .topics
            .iter()
            .map(|topic| {
                let record = self.metadata.decide_create_partitions(
                    &topic.name,
                    topic.count,
                    topic.assignments.as_deref(),
                    &self.options.topics,
                )?;
                if request.validate_only {
                    return Ok(());
                }
                if !self.has_room_for(&draft, cuts.bytes(), [&record]) {
                    let message = "with what stands before it in the request the topic's new \
                                   partitions do not fit one journal record; name fewer topics at \
                                   a time";
                    return Err((ErrorCode::InvalidRequest, message.to_owned()));
                }
                if self.options.exclusive.create_partitions {
                    let operation = ExclusiveOperation::CreatePartitions;
                    self.cut_topic(&mut cuts, operation, &topic.name, &draft, &record)?;
                }
                self.append_metadata(&mut draft, &[record]);
                Ok(())
            })
            .collect();
        self.cut_through(&mut draft, cuts, now, step);
        self.finish(draft, step);
        grown
    }
}
