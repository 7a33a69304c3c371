use std::fmt;

/// A record's TimeTick: a 64-bit hybrid clock, `milliseconds << 18 | logical`, strictly rising
/// within a journal for ever, over restarts and when the wall clock steps back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tick(pub u64);

impl Tick {
    /// Bits of the logical counter below the milliseconds.
    pub const LOGICAL_BITS: u32 = 18;
    /// Before the first record.
    pub const ZERO: Tick = Tick(0);

    /// The first tick of a wall-clock millisecond.
    pub fn from_wall_ms(wall_ms: i64) -> Tick {
        Tick((wall_ms.max(0) as u64) << Self::LOGICAL_BITS)
    }

    /// The write time in milliseconds (AlignmentTimestamp). It stays ahead after a clock error.
    pub fn alignment_ms(self) -> i64 {
        (self.0 >> Self::LOGICAL_BITS) as i64
    }

    /// The lowest tick above this one.
    pub fn next(self) -> Tick {
        Tick(self.0.saturating_add(1))
    }

    /// The tick of the next record: the clock's, or one more than the last when the clock has not
    /// moved past it.
    pub fn after(last: Tick, clock: Tick) -> Tick {
        Tick((last.0 + 1).max(clock.0))
    }
}

impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let logical = self.0 & ((1 << Self::LOGICAL_BITS) - 1);
        write!(f, "{}ms+{logical}", self.alignment_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_rise_when_the_clock_stands_still_or_steps_back() {
        let first = Tick::after(Tick::ZERO, Tick::from_wall_ms(1_000));
        assert_eq!(first.alignment_ms(), 1_000);
        let second = Tick::after(first, Tick::from_wall_ms(1_000));
        assert!(second > first);
        let third = Tick::after(second, Tick::from_wall_ms(10));
        assert!(third > second);
        assert_eq!(third.alignment_ms(), 1_000);
    }
}
