//! What the group coordinator asks for is carried out here: its records appended, its replies sent.

use bytes::BytesMut;
use tidemark_group_coordinator::{Ctx, Effect, Groups};
use tidemark_record_batch::BatchBuilder;
use tidemark_types::TopicPartitionId;

use crate::Owner;
use crate::command::{Now, Step, Token};

use super::group_reply;

impl Owner {
    pub(crate) fn with_group_clock<T>(
        &mut self,
        now: &mut Now<'_>,
        call: impl FnOnce(&mut Groups, &mut Ctx<'_>) -> T,
    ) -> T {
        let uuid = &mut now.uuid;
        let mut suffix = || {
            let bytes = uuid();
            tidemark_types::TopicId(bytes).to_string()
        };
        let mut clock = Ctx {
            now: now.mono,
            wall_ms: now.wall_ms,
            member_id_suffix: &mut suffix,
        };
        call(&mut self.groups, &mut clock)
    }

    pub(crate) fn carry_out(&mut self, effects: Vec<Effect>, now: &Now<'_>, step: &mut Step) {
        let mut draft = self.begin(now);
        for effect in effects {
            match effect {
                Effect::Append {
                    partition, records, ..
                } => {
                    let mut batch = BatchBuilder::new(draft.wall_ms);
                    for record in &records {
                        batch.push(Some(&record.encode_key()), record.encode_value().as_deref());
                    }
                    self.append(
                        &mut draft,
                        TopicPartitionId::consumer_offsets(partition),
                        BytesMut::from(&batch.build()[..]),
                    );
                }
                Effect::Reply(token, reply) => {
                    step.replies.push((Token(token.0), group_reply(reply)));
                }
            }
        }
        self.finish(draft, step);
    }
}
