//! What can be done with a data directory while no broker runs on it: check it, print it, rebuild it.
//!
//! | module | question |
//! |-|-|
//! | `directory` | is this a data directory, and does nobody use it? |
//! | `check` | is everything as it was written, and do the broker and the independent reader agree? |
//! | `dump` | what does a file hold, for a person or a program? |
//! | `rebuild` | what do the segments alone give, and how does a start come to it? |
//! | `value` | how is a batch, a record, a time shown? |

mod check;
mod directory;
pub mod dump;
mod rebuild;
mod value;

pub use check::{Checked, check};
pub use directory::{Directory, Refusal};
pub use rebuild::{Rebuilt, rebuild};
