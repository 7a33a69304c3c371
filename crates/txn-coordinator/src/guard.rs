//! A guard for the classic dialect: a request of an earlier transaction that is delayed until the next
//! one of the same session is under way.
//!
//! In the classic dialect an epoch names a session, so that a delayed AddPartitionsToTxn or EndTxn
//! cannot be told from a new one (KIP-890's motivation). What tells it is where it comes from: its
//! client has given its connection up, opened another one, and gone on there. So a request that comes
//! on an **older connection than the newest one that its session has spoken on** is answered once with
//! a code on which clients ask again, and not carried out. Nobody is there to ask again for a delayed
//! one. A client that is alive does, and a second request of the same kind on a connection shows that
//! the answer to the first was read: from then on the session is known to use several connections, and
//! is left alone.
//!
//! TxnOffsetCommit goes to the group's coordinator, and may do so over a connection of its own, which
//! may be the older one for good. What tells a delayed one is that its client has gone on to a newer
//! connection on either way, so it is compared with the newest of both; and each of its connections is
//! put off once for every newer one that its session speaks on, which says nothing of the others.
//!
//! What it takes to hold (`tests/guard.rs` tries every interleaving):
//!
//! - A client uses one connection at a time for its requests to the coordinator, opens the next after
//!   it gave up the one before, hears something of the broker on each before it asks (ApiVersions),
//!   and waits for the answer to a request before it sends the next of the same kind. So does the Java
//!   client, whose TxnOffsetCommit goes over the same connection where one broker is both coordinators.
//!   Then no delayed request of an earlier transaction is carried out, and no request that is waited
//!   for is ever put off.
//! - librdkafka has such a connection to each coordinator. Of its requests to the transaction's the same
//!   is true. Its TxnOffsetCommit is put off once for every newer connection, and a delayed one is told
//!   if the client gave both connections up, or has sent another one since; it is not if the client
//!   gave up its connection to the group's coordinator alone and aborted over the other one.
//! - Clients that do otherwise (a pool of connections, a session that is handed to another process)
//!   are not guarded, and not fenced: a connection is put off a few times, with a code that is no
//!   error to them.
//!
//! Batches are not guarded: they go over other connections, several at a time, and a client that gives
//! up a batch opens a new session (KIP-360). In memory only: a start ends every connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tidemark_types::{ProducerEpoch, ProducerId};

/// A connection's number: those that were opened later have higher ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ConnectionId(pub u64);

/// The requests that are guarded. Each goes to a coordinator; a client has one of a kind in flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Guarded {
    AddPartitions,
    AddOffsets,
    EndTxn,
    /// It goes to the group's coordinator, and so perhaps over a connection of its own.
    TxnOffsetCommit,
}

/// Older connections of one session that are remembered to have been put off.
const PUT_OFF: usize = 8;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Spoken {
    session: (ProducerId, ProducerEpoch),
    /// The newest connection to the transaction's coordinator.
    newest: Option<ConnectionId>,
    /// Requests to the transaction's coordinator that were put off.
    put_off: BTreeSet<(ConnectionId, Guarded)>,
    /// The newest connection on either way.
    newest_of_all: Option<ConnectionId>,
    /// Connections whose TxnOffsetCommit was put off because of `newest_of_all`.
    offsets_put_off: BTreeSet<ConnectionId>,
    /// It uses several connections at a time.
    several: bool,
}

/// Which connections the present sessions have spoken on.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ConnectionGuard {
    spoken: BTreeMap<Arc<str>, Spoken>,
}

impl ConnectionGuard {
    /// True if a classic request of a transactional id's present session may be carried out; else it
    /// is to be answered with a code on which clients ask again.
    pub fn admits(
        &mut self,
        transactional_id: &Arc<str>,
        session: (ProducerId, ProducerEpoch),
        request: Guarded,
        connection: ConnectionId,
    ) -> bool {
        let fresh = || Spoken {
            session,
            newest: None,
            put_off: BTreeSet::new(),
            newest_of_all: None,
            offsets_put_off: BTreeSet::new(),
            several: false,
        };
        let spoken = self.spoken.entry(transactional_id.clone());
        let spoken = spoken.or_insert_with(fresh);
        if spoken.session != session {
            *spoken = fresh();
        }
        match request {
            Guarded::TxnOffsetCommit => spoken.admits_offsets(connection),
            _ => spoken.admits(request, connection),
        }
    }

    /// The transactional id is forgotten, or the session that it was in never was.
    pub fn forget(&mut self, transactional_id: &str) {
        self.spoken.remove(transactional_id);
    }
}

impl Spoken {
    fn admits(&mut self, request: Guarded, connection: ConnectionId) -> bool {
        if self.several || self.newest.is_none_or(|newest| connection >= newest) {
            self.newest = self.newest.max(Some(connection));
            self.spoke_on(connection);
            return true;
        }
        let again = !self.put_off.insert((connection, request));
        self.several = again || self.put_off.len() >= PUT_OFF;
        self.several
    }

    fn admits_offsets(&mut self, connection: ConnectionId) -> bool {
        let newest = self.newest_of_all;
        if self.several || newest.is_none_or(|newest| connection >= newest) {
            self.spoke_on(connection);
            return true;
        }
        self.offsets_put_off.len() >= PUT_OFF || !self.offsets_put_off.insert(connection)
    }

    /// Who was asked again on an older connection may have given that up since.
    fn spoke_on(&mut self, connection: ConnectionId) {
        if self.newest_of_all < Some(connection) {
            self.newest_of_all = Some(connection);
            self.offsets_put_off.clear();
        }
    }
}
