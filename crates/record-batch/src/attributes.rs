/// Compression codec of a batch: bits 0 to 2 of its attributes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    /// Needs Produce v7 and Fetch v10 (KIP-110).
    Zstd,
}

impl Codec {
    /// The codec of an id, `None` for one that Kafka has not given out.
    pub fn from_id(id: i16) -> Option<Codec> {
        Some(match id {
            0 => Codec::None,
            1 => Codec::Gzip,
            2 => Codec::Snappy,
            3 => Codec::Lz4,
            4 => Codec::Zstd,
            _ => return None,
        })
    }

    pub fn id(self) -> i16 {
        match self {
            Codec::None => 0,
            Codec::Gzip => 1,
            Codec::Snappy => 2,
            Codec::Lz4 => 3,
            Codec::Zstd => 4,
        }
    }
}

/// Whose clock a batch's timestamps are from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TimestampType {
    /// Each record carries the time its client gave it.
    #[default]
    CreateTime,
    /// Every record has the batch's max timestamp, which the broker wrote (KIP-32).
    LogAppendTime,
}

/// The 16 attribute bits of a batch: 0-2 codec, 3 timestamp type, 4 transactional, 5 control,
/// 6 delete horizon (KIP-534); the rest are unused and left as they came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    const CODEC_MASK: i16 = 0b111;
    const LOG_APPEND_TIME: i16 = 1 << 3;
    const TRANSACTIONAL: i16 = 1 << 4;
    const CONTROL: i16 = 1 << 5;
    const DELETE_HORIZON: i16 = 1 << 6;

    /// The codec, `None` when the id is not one of Kafka's.
    pub fn codec(self) -> Option<Codec> {
        Codec::from_id(self.0 & Self::CODEC_MASK)
    }

    /// The codec id as it stands in the bits, for messages about an unknown one.
    pub fn codec_id(self) -> i16 {
        self.0 & Self::CODEC_MASK
    }

    pub fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME != 0 {
            TimestampType::LogAppendTime
        } else {
            TimestampType::CreateTime
        }
    }

    pub fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    pub fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// True when the base timestamp holds a delete horizon (KIP-534).
    pub fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    #[must_use]
    pub fn with_codec(self, codec: Codec) -> Attributes {
        Attributes((self.0 & !Self::CODEC_MASK) | codec.id())
    }

    #[must_use]
    pub fn with_log_append_time(self) -> Attributes {
        Attributes(self.0 | Self::LOG_APPEND_TIME)
    }

    #[must_use]
    pub fn with_create_time(self) -> Attributes {
        Attributes(self.0 & !Self::LOG_APPEND_TIME)
    }

    #[must_use]
    pub fn with_transactional(self) -> Attributes {
        Attributes(self.0 | Self::TRANSACTIONAL)
    }

    #[must_use]
    pub fn with_delete_horizon(self) -> Attributes {
        Attributes(self.0 | Self::DELETE_HORIZON)
    }

    #[must_use]
    pub fn without_delete_horizon(self) -> Attributes {
        Attributes(self.0 & !Self::DELETE_HORIZON)
    }

    #[must_use]
    pub fn with_control(self) -> Attributes {
        Attributes(self.0 | Self::CONTROL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_kafkas() {
        let attributes = Attributes::default()
            .with_codec(Codec::Zstd)
            .with_log_append_time()
            .with_transactional()
            .with_control();
        assert_eq!(attributes.0, 0b11_1100);
        assert_eq!(attributes.codec(), Some(Codec::Zstd));
        assert_eq!(attributes.timestamp_type(), TimestampType::LogAppendTime);
        assert!(attributes.is_transactional() && attributes.is_control());
        assert!(!attributes.has_delete_horizon());
        assert!(Attributes(64).has_delete_horizon());
        assert_eq!(attributes.with_codec(Codec::None).0, 0b11_1000);
    }

    #[test]
    fn ids_5_to_7_are_no_codec() {
        for id in 0..8 {
            match Attributes(id).codec() {
                Some(codec) => assert_eq!(codec.id(), id),
                None => assert!((5..8).contains(&id)),
            }
        }
    }
}
