//! What is read back, and how: cuts by tick, segments that lost bytes, budgets of memory and files.

mod journal_reader;
mod memory;
mod shortened;
mod ticks;
mod twice;
