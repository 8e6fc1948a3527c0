//! Products of native kernels, executed as machine code on the emulated array, beside the definition in double precision and the
//! reference kernels.

mod data;
mod device;
mod integers;
mod products;
mod rejections;
mod streams;
