//! Consumer groups and their offsets as a pure state machine
