//! A broker's threads, and their end.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::Sender;
use tidemark_journal::LocalJournal;
use tidemark_types::JournalIndex;
use tracing::error;

use crate::compaction::Compaction;
use crate::maintenance::Request;
use crate::owner_thread::Message;
use crate::shared::Shared;
use crate::start::DataLock;

/// What a start read of the journal: everything after the newest checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    pub records: u64,
    pub bytes: u64,
}

/// The state and the threads of a broker whose replay is done.
pub(crate) struct Running {
    pub shared: Arc<Shared>,
    pub journal: Arc<LocalJournal>,
    pub queue: Sender<Message>,
    pub requests: Sender<Request>,
    pub owner: Option<JoinHandle<()>>,
    pub maintenance: Option<JoinHandle<()>>,
    pub compaction: Compaction,
    pub compactor: Option<JoinHandle<()>>,
    /// The last record that the start itself wrote: requests are served once it is durable.
    pub first_served: JournalIndex,
    pub cluster_id: String,
    pub replayed: Replayed,
    /// Held until everything else has ended.
    pub _lock: DataLock,
}

impl Running {
    /// Writes everything that is confirmed to segments, and a checkpoint. Blocks.
    pub fn checkpoint(requests: &Sender<Request>) {
        let (done, told) = crossbeam_channel::bounded(1);
        if requests.send(Request::CheckpointNow(done)).is_ok() {
            let _told_or_stopped = told.recv();
        }
    }

    /// Looks for expired records, and waits until the log starts have moved. Blocks.
    pub fn retain(requests: &Sender<Request>) {
        let (done, told) = crossbeam_channel::bounded(1);
        if requests.send(Request::RetainNow(done)).is_ok() {
            let _told_or_stopped = told.recv();
        }
    }

    /// Ends in order: a last checkpoint, then the owner, then the journal with what is queued.
    /// Blocks.
    pub fn stop(mut self) {
        self.compaction.stop();
        join("compaction", self.compactor.take());
        let _maintenance_has_ended = self.requests.send(Request::Stop);
        join("maintenance", self.maintenance.take());
        let _owner_has_ended = self.queue.send(Message::Stop);
        join("owner", self.owner.take());
        self.journal.shutdown();
    }
}

fn join(name: &str, thread: Option<JoinHandle<()>>) {
    if thread.is_some_and(|thread| thread.join().is_err()) {
        error!("the {name} thread had panicked");
    }
}
