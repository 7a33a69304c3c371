//! The records of `__transaction_state`: the state of transactional ids, in Kafka's format with
//! tagged fields of Tidemark's own.

use std::collections::{BTreeMap, BTreeSet};

use crate::bytes::{Fields, text};

/// The state of a transactional id.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct TransactionalId {
    pub producer_id: i64,
    pub epoch: i16,
    pub timeout_ms: i32,
    /// Kafka's number of the state.
    pub state: i8,
    pub partitions: BTreeSet<(String, i32)>,
    pub last_update_ms: i64,
    pub start_ms: i64,
    pub previous_producer_id: Option<i64>,
    pub next_producer_id: Option<i64>,
    pub client_transaction_version: i16,
    pub last_epoch: Option<i16>,
    pub txn_number: u64,
    pub principal: String,
    pub client_id: String,
    pub host: String,
    pub ended_by: i8,
}

impl TransactionalId {
    /// Kafka's name of the state.
    pub fn state_name(&self) -> &'static str {
        match self.state {
            0 => "Empty",
            1 => "Ongoing",
            2 => "PrepareCommit",
            3 => "PrepareAbort",
            4 => "CompleteCommit",
            5 => "CompleteAbort",
            6 => "Dead",
            7 => "PrepareEpochFence",
            _ => "unknown",
        }
    }

    pub fn is_ongoing(&self) -> bool {
        self.state == 1
    }
}

/// The transactional id of a key.
///
/// Errors say in a few words what is wrong.
pub fn parse_key(key: &[u8]) -> Result<String, String> {
    let mut f = Fields::new(key);
    match f.i16() {
        Some(0) => {}
        version => return Err(format!("a key of version {version:?}")),
    }
    let id = f.string().filter(|_| f.left() == 0);
    id.ok_or_else(|| "a key that is not well formed".to_owned())
}

/// The state that a value holds.
pub fn parse_value(value: &[u8]) -> Result<TransactionalId, String> {
    let mut f = Fields::new(value);
    let flexible = match f.i16() {
        Some(0) => false,
        Some(1) => true,
        version => return Err(format!("a value of version {version:?}")),
    };
    let parsed = parse(&mut f, flexible).filter(|_| f.left() == 0);
    parsed.ok_or_else(|| "a value that is not well formed".to_owned())
}

fn count(f: &mut Fields<'_>, flexible: bool) -> Option<u64> {
    match flexible {
        true => Some(f.uvarint()?.saturating_sub(1)),
        false => Some(f.i32()?.max(0) as u64),
    }
}

fn parse(f: &mut Fields<'_>, flexible: bool) -> Option<TransactionalId> {
    let mut id = TransactionalId {
        producer_id: f.i64()?,
        epoch: f.i16()?,
        timeout_ms: f.i32()?,
        state: f.i8()?,
        ..TransactionalId::default()
    };
    for _ in 0..count(f, flexible)? {
        let topic = match flexible {
            true => f.compact_string()??,
            false => f.string()?,
        };
        for _ in 0..count(f, flexible)? {
            id.partitions.insert((topic.clone(), f.i32()?));
        }
        if flexible {
            each_tagged(f, |_, _| Some(()))?;
        }
    }
    id.last_update_ms = f.i64()?;
    id.start_ms = f.i64()?;
    if flexible {
        each_tagged(f, |tag, mut field| {
            match tag {
                0 => id.previous_producer_id = Some(field.i64()?),
                1 => id.next_producer_id = Some(field.i64()?),
                2 => id.client_transaction_version = field.i16()?,
                10_000 => id.last_epoch = Some(field.i16()?),
                10_001 => id.txn_number = field.u64()?,
                10_002 => id.principal = text(field.take(field.left())?)?,
                10_003 => id.client_id = text(field.take(field.left())?)?,
                10_004 => id.host = text(field.take(field.left())?)?,
                10_005 => id.ended_by = field.i8()?,
                _ => {}
            }
            Some(())
        })?;
    }
    Some(id)
}

fn each_tagged<'a>(
    f: &mut Fields<'a>,
    mut each: impl FnMut(u64, Fields<'a>) -> Option<()>,
) -> Option<()> {
    for _ in 0..f.uvarint()? {
        let tag = f.uvarint()?;
        let len = usize::try_from(f.uvarint()?).ok()?;
        each(tag, Fields::new(f.take(len)?))?;
    }
    Some(())
}

/// By transactional id.
pub type TransactionalIds = BTreeMap<String, TransactionalId>;
