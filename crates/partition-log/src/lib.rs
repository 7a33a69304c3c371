//! A partition's log: tail in memory, segments on disk, checkpoint files
