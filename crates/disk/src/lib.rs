//! The disk seam: trait, operating system disk, simulated disk
