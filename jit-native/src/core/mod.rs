//! Programs of cores: virtual registers, loops, scheduling, register allocation, and the checker of what comes out.
