//! What readers know without asking the owner: the metadata image of each tick, and the logs.

use std::collections::VecDeque;
use std::sync::Arc;

use dashmap::DashMap;
use parking_lot::{Mutex, RwLock};
use tidemark_metadata::{MetadataImage, TopicDefaults, TopicImage};
use tidemark_partition_log::{PartitionLog, SegmentRules};
use tidemark_types::{Tick, TopicPartitionId};

/// Metadata images by the tick that brought them, and every partition's log.
///
/// The map hands out `Arc` clones only, never its guards: a guard held across an await, or a second
/// access to the map under one, would deadlock.
pub struct Catalogue {
    images: RwLock<VecDeque<Metadata>>,
    /// What topics get that set nothing themselves, by the settings of the start.
    defaults_at_start: TopicDefaults,
    logs: DashMap<TopicPartitionId, Arc<PartitionLog>>,
    /// The logs as a list, made when it is asked for after a change.
    list: Mutex<Option<Arc<LogList>>>,
}

/// Logs in the order of their ids.
pub type LogList = Vec<(TopicPartitionId, Arc<PartitionLog>)>;

/// An image and what follows from it.
#[derive(Clone)]
pub struct Metadata {
    tick: Tick,
    pub image: Arc<MetadataImage>,
    /// What topics get that set nothing themselves, dynamic settings included.
    pub defaults: Arc<TopicDefaults>,
}

impl Catalogue {
    pub fn new(
        tick: Tick,
        image: Arc<MetadataImage>,
        defaults_at_start: TopicDefaults,
    ) -> Catalogue {
        let first = Metadata {
            tick,
            defaults: Arc::new(image.topic_defaults(&defaults_at_start)),
            image,
        };
        Catalogue {
            images: RwLock::new(VecDeque::from([first])),
            defaults_at_start,
            logs: DashMap::new(),
            list: Mutex::new(None),
        }
    }

    /// The newest image at or below `tick`.
    pub fn image_at(&self, tick: Tick) -> Arc<MetadataImage> {
        self.at(tick).image
    }

    /// The newest image at or below `tick`, with its defaults.
    pub fn at(&self, tick: Tick) -> Metadata {
        let images = self.images.read();
        let newest = images.iter().rev().find(|entry| entry.tick <= tick);
        newest
            .or_else(|| images.front())
            .cloned()
            .expect("a catalogue always holds an image")
    }

    /// The newest image, published or not.
    pub fn newest_image(&self) -> Arc<MetadataImage> {
        self.newest().image
    }

    /// The newest image, published or not, with its defaults.
    pub fn newest(&self) -> Metadata {
        let images = self.images.read();
        let newest = images.back().cloned();
        newest.expect("a catalogue always holds an image")
    }

    /// Adds the image of `tick` and drops those that no reader at or above `oldest_needed` takes.
    /// True if it brings other defaults than the one before.
    pub fn push_image(&self, tick: Tick, image: Arc<MetadataImage>, oldest_needed: Tick) -> bool {
        let before = self.newest();
        let same = image.has_broker_configs_of(&before.image);
        let defaults = match same {
            true => before.defaults,
            false => Arc::new(image.topic_defaults(&self.defaults_at_start)),
        };
        let mut images = self.images.write();
        images.push_back(Metadata {
            tick,
            image,
            defaults,
        });
        while images.len() > 1 && images[1].tick <= oldest_needed {
            images.pop_front();
        }
        !same
    }

    /// Drops the images above `tick`: the records that brought them were lost.
    pub fn lose(&self, tick: Tick) {
        let mut images = self.images.write();
        while images.len() > 1 && images.back().is_some_and(|image| image.tick > tick) {
            images.pop_back();
        }
    }

    /// Gives every log the segment rules that its topic has by the newest image.
    pub fn apply_segment_rules(&self) {
        let Metadata {
            image, defaults, ..
        } = self.newest();
        for topic in image.topics() {
            self.apply_segment_rules_of(topic, &defaults);
        }
    }

    /// Gives the logs of one topic its segment rules.
    pub fn apply_segment_rules_of(&self, topic: &TopicImage, defaults: &TopicDefaults) {
        let rules = segment_rules(topic, defaults);
        let logs = topic.partition_ids().filter_map(|id| self.log(id));
        logs.for_each(|log| log.set_segment_rules(rules));
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

/// What a topic says of its segments.
pub fn segment_rules(topic: &TopicImage, defaults: &TopicDefaults) -> SegmentRules {
    let config = topic.resolve(defaults);
    let bytes = |value: i32| u64::try_from(value).unwrap_or(0);
    SegmentRules {
        segment_bytes: bytes(config.segment_bytes),
        // Only closed segments are compacted: what must be within a time must be closed by then.
        segment_ms: match config.cleanup_policy.compact {
            true => config.segment_ms.min(config.max_compaction_lag_ms),
            false => config.segment_ms,
        },
        segment_jitter_ms: config.segment_jitter_ms,
        segment_index_bytes: bytes(config.segment_index_bytes),
        index_interval_bytes: bytes(config.index_interval_bytes),
    }
}
