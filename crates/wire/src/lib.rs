//! Frames, headers, the API table and bounds-checked decoding
