//! Randomness that a seed repeats.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemark_broker::Entropy;

/// Ids drawn from a seed.
pub struct SeededEntropy(Mutex<StdRng>);

impl SeededEntropy {
    pub fn new(seed: u64) -> SeededEntropy {
        SeededEntropy(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Entropy for SeededEntropy {
    fn uuid(&self) -> [u8; 16] {
        self.0.lock().random()
    }
}
