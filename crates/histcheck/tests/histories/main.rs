//! Each check of histories, on histories written by hand: one that it must flag, and one close to it that is right.

mod checks;
mod format;
mod story;
