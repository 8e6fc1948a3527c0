//! Programs of cores, from loops over virtual registers to bundles.
//!
//! A kernel author writes a program with [`CoreBuilder`]: virtual registers of the core's classes, instructions by mnemonic or
//! row of `aie-isa`'s tables with typed conveniences on top, counted loops, conditions, locks. [`CoreBuilder::finish`] makes
//! the machine code: it schedules instructions into bundles by the tables' timing, gives them registers and lays out the bytes.
//! What an author writes says nothing of cycles, slots or register numbers, so sources stay as they are when scheduling gets
//! better.
//!
//! # Registers are variables
//!
//! A [`Reg`] is a variable, not a value: it may be written many times, and a loop's body sees what the iteration before has
//! left. Post-modified pointers and accumulators are therefore plain: `load(w, p, Then(32))` moves `p` on, `mac(acc, acc, ..)`
//! adds to `acc`. Halves ([`Reg::lo`], [`Reg::hi`]) are written and read on their own: a vector of 512 bits is loaded as two
//! halves. Each variable gets one register for all its life; variables whose lives do not overlap share registers. There is no
//! spilling: too many variables at once are an error that names them.
//!
//! An instruction that wants a register of its own (the condition of `sel` is in `r27`) or of a part of a class (selections of
//! `vsel.32` are in `r16` to `r23`) restricts its variable; where two instructions want different ones, or variables are in each other's way, moves are added.
//!
//! # Loops
//!
//! Innermost loops without conditions become hardware loops, or branch back by JNZ ([`LoopForm`]). Where that is faster, their iterations overlap by modulo scheduling
//! ([`LoopReport`] has the interval that is reached and its bounds). A loop whose count may be too small for that is there
//! twice; [`Count::at_least`] avoids it, [`Count::multiple_of`] lets the scheduler unroll. A loop with too few registers gets a
//! longer interval; in a program beyond 16 KB, loops that gain little for their length lose their overlap.
//!
//! # Memory
//!
//! Accesses through pointers of different [`AliasRegion`]s are taken to be independent. Within a region, stores stay ordered with
//! everything, loads are free among themselves. Acquiring and releasing locks is ordered with all accesses.
//!
//! ```
//! use aie_isa::Isa;
//! use aie_jit_native::codegen::{Address, Class, CoreBuilder};
//!
//! // Adds 16 vectors of 16 words to as many others, in place.
//! let mut b = CoreBuilder::new(Isa::aie2());
//! let (input, sums) = (b.region("input"), b.region("sums"));
//! let (from, to) = (b.pointer_at(input, 0x70400), b.pointer_at(sums, 0x70800));
//! let out = b.pointer(sums);
//! b.mov(out, to);
//! b.repeat(16, |b| {
//!     let (x, y) = (b.reg(Class::X), b.reg(Class::X));
//!     b.load(x, from, Address::Then(64));
//!     b.load(y, to, Address::Then(64));
//!     b.emit("vadd.32", [x, x, y]);
//!     b.store(x, out, Address::Then(64));
//! });
//! b.done();
//! let program = b.finish()?;
//! assert!(program.code.len() <= 16 * 1024);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allocate;
mod block;
mod builder;
mod control;
mod dead;
mod depend;
mod error;
mod finish;
mod flow;
mod layout;
mod list;
mod lower;
mod macs;
mod modulo;
mod operation;
mod pipeline;
mod program;
mod register;
mod reservation;
mod scalar;
mod schedule;
mod select;
mod split;
mod stages;
mod target;
mod timing;
mod vector;

pub use builder::CoreBuilder;
pub use error::CoreError;
pub use finish::{Build, Scheduling};
pub use flow::{Count, LoopForm};
pub use operation::RegOrImm;
pub use program::{CoreProgram, LoopReport, Section};
pub use register::{AliasRegion, Class, Reg};
pub use stages::Stages;
pub use target::isa_of;
pub use vector::Address;
