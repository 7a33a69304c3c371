//! What one broker has drawn: producer ids, member ids, topic ids, under the names of the script.

use std::collections::HashMap;

use anyhow::{Context, Result, bail};
use uuid::Uuid;

/// A value under a name.
#[derive(Clone, Debug)]
pub enum Drawn {
    Producer { id: i64, epoch: i16 },
    Member { id: String, generation: i32 },
    Session(i32),
}

/// All names of one script on one broker.
#[derive(Clone, Debug, Default)]
pub struct Env {
    pub drawn: HashMap<String, Drawn>,
    pub topic_ids: HashMap<String, Uuid>,
}

impl Env {
    /// A producer: `p`, `p+1` (another epoch), `p:5` (that epoch), `77:0` (literally), `none`.
    pub fn producer(&self, spec: &str) -> Result<(i64, i16)> {
        if spec == "none" {
            return Ok((-1, -1));
        }
        // A minus in front belongs to a number.
        let split = spec[1.min(spec.len())..]
            .find([':', '+', '-'])
            .map(|at| at + 1);
        let (name, change) = spec.split_at(split.unwrap_or(spec.len()));
        let (id, epoch) = match self.drawn.get(name) {
            Some(Drawn::Producer { id, epoch }) => (*id, *epoch),
            Some(other) => bail!("{name} is {other:?}, no producer"),
            None => (
                name.parse()
                    .with_context(|| format!("no producer {name}"))?,
                0,
            ),
        };
        let epoch = match change.strip_prefix(':') {
            Some(literal) => literal.parse()?,
            None if change.is_empty() => epoch,
            None => epoch.wrapping_add(change.parse::<i16>()?),
        };
        Ok((id, epoch))
    }

    /// A member's id and generation.
    pub fn member(&self, name: &str) -> Result<(String, i32)> {
        match self.drawn.get(name) {
            Some(Drawn::Member { id, generation }) => Ok((id.clone(), *generation)),
            _ => bail!("no member {name}"),
        }
    }

    /// A fetch session: a name or a number.
    pub fn session(&self, spec: &str) -> Result<i32> {
        match self.drawn.get(spec) {
            Some(Drawn::Session(id)) => Ok(*id),
            _ => spec
                .parse()
                .with_context(|| format!("no fetch session {spec}")),
        }
    }

    /// The topic's id, or for a topic that never was: one that no broker draws.
    pub fn topic_id(&self, name: &str) -> Uuid {
        let never_drawn = Uuid::from_u128(0x7777_7777_0000_4000_8000_0000_0000_0001);
        if name == "zero" {
            return Uuid::nil();
        }
        self.topic_ids.get(name).copied().unwrap_or(never_drawn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_producer_can_be_bent() {
        let mut env = Env::default();
        env.drawn
            .insert("p".to_owned(), Drawn::Producer { id: 70, epoch: 3 });
        let cases = [
            ("p", (70, 3)),
            ("p+1", (70, 4)),
            ("p-2", (70, 1)),
            ("p:9", (70, 9)),
            ("p:-1", (70, -1)),
            ("123:4", (123, 4)),
            ("-2:0", (-2, 0)),
            ("none", (-1, -1)),
        ];
        for (spec, producer) in cases {
            assert_eq!(env.producer(spec).expect(spec), producer, "{spec}");
        }
        assert!(env.producer("q").is_err());
    }
}
