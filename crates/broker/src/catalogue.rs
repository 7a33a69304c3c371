//! What readers know without asking the owner: the metadata image of each tick, and the logs.

use std::collections::VecDeque;
use std::sync::Arc;

use dashmap::DashMap;
use parking_lot::{Mutex, RwLock};
use tidemark_metadata::MetadataImage;
use tidemark_partition_log::PartitionLog;
use tidemark_types::{Tick, TopicPartitionId};

/// Metadata images by the tick that brought them, and every partition's log.
///
/// The map hands out `Arc` clones only, never its guards: a guard held across an await, or a second
/// access to the map under one, would deadlock.
pub struct Catalogue {
    images: RwLock<VecDeque<(Tick, Arc<MetadataImage>)>>,
    logs: DashMap<TopicPartitionId, Arc<PartitionLog>>,
    /// The logs as a list, made when it is asked for after a change.
    list: Mutex<Option<Arc<LogList>>>,
}

/// Logs in the order of their ids.
pub type LogList = Vec<(TopicPartitionId, Arc<PartitionLog>)>;

impl Catalogue {
    pub fn new(tick: Tick, image: Arc<MetadataImage>) -> Catalogue {
        Catalogue {
            images: RwLock::new(VecDeque::from([(tick, image)])),
            logs: DashMap::new(),
            list: Mutex::new(None),
        }
    }

    /// The newest image at or below `tick`.
    pub fn image_at(&self, tick: Tick) -> Arc<MetadataImage> {
        let images = self.images.read();
        let newest = images.iter().rev().find(|(t, _)| *t <= tick);
        newest
            .or_else(|| images.front())
            .map(|(_, image)| image.clone())
            .expect("a catalogue always holds an image")
    }

    /// The newest image, published or not.
    pub fn newest_image(&self) -> Arc<MetadataImage> {
        let images = self.images.read();
        images
            .back()
            .map(|(_, image)| image.clone())
            .expect("a catalogue always holds an image")
    }

    /// Adds the image of `tick` and drops those that no reader at or above `oldest_needed` takes.
    pub fn push_image(&self, tick: Tick, image: Arc<MetadataImage>, oldest_needed: Tick) {
        let mut images = self.images.write();
        images.push_back((tick, image));
        while images.len() > 1 && images[1].0 <= oldest_needed {
            images.pop_front();
        }
    }

    pub fn log(&self, id: TopicPartitionId) -> Option<Arc<PartitionLog>> {
        self.logs.get(&id).map(|log| log.clone())
    }

    pub fn insert_log(&self, id: TopicPartitionId, log: Arc<PartitionLog>) {
        self.logs.insert(id, log);
        *self.list.lock() = None;
    }

    pub fn remove_log(&self, id: TopicPartitionId) -> Option<Arc<PartitionLog>> {
        let removed = self.logs.remove(&id).map(|(_, log)| log);
        *self.list.lock() = None;
        removed
    }

    /// Every log there is at some moment of the call.
    pub fn logs(&self) -> Arc<LogList> {
        // Held while the list is made: a change that comes meanwhile drops it afterwards.
        let mut list = self.list.lock();
        let made = list.get_or_insert_with(|| {
            let mut all: LogList = self
                .logs
                .iter()
                .map(|entry| (*entry.key(), entry.value().clone()))
                .collect();
            all.sort_by_key(|(id, _)| *id);
            Arc::new(all)
        });
        made.clone()
    }
}
