//! The block of parameters that a dispatch gives each core.

/// Offset of the block in the core's memory, and its words.
pub(super) const OFFSET: u32 = 0;
pub(super) const WORDS: u32 = 32;

macro_rules! parameters {
    ($($(#[$doc:meta])* $field:ident: $variant:ident;)*) => {
        /// A word of the block, by its place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Parameter { $($variant,)* }

        /// What a core has to know of its part of a product. All sizes are in bytes, addresses as the core sees them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct Parameters { $($(#[$doc])* pub $field: u32,)* }

        impl Parameters {
            /// The block.
            pub fn words(&self) -> Vec<u32> {
                vec![$(self.$field),*]
            }
        }
    };
}

parameters! {
    /// Tiles of the result, one after the other.
    tiles: Tiles;
    /// Pieces of `k`, for each of which operands arrive.
    chunks: Chunks;
    /// Groups of 16 rows of weights in a tile; 0 if the core has no part.
    groups: Groups;
    /// Units of columns: of 16 if `wide`, else of 4.
    units: Units;
    /// 1 if columns come in units of 16.
    wide: Wide;
    /// Steps of 8 `k` in a chunk.
    steps: Steps;
    /// The same in steps of 32.
    long_steps: LongSteps;
    /// Number of the type of weights.
    weights: Weights;
    /// Blocks of 32 in a row of a chunk, and half of that.
    blocks: Blocks;
    pairs: Pairs;
    /// 1 if the order of `k` is that of halves of bytes.
    halves: Halves;
    /// 1 if columns arrive for every tile, 0 if only for the first.
    columns_every_time: ColumnsEveryTime;
    /// Sums of one block of four columns.
    sums_stride: SumsStride;
    /// One column of a chunk, as it arrives.
    column_bytes: ColumnBytes;
    /// Blocks of four columns in a unit.
    blocks_per_unit: BlocksPerUnit;
    /// From one step of 8 `k` to the next in a unit of converted columns.
    step_bytes: StepBytes;
    /// A unit of converted columns.
    unit_bytes: UnitBytes;
    /// Converted columns.
    columns: Columns;
    /// From the converted columns of a chunk to those of the next; 0 if these take their place.
    chunk_bytes: ChunkBytes;
    /// Decoded weights.
    decoded: Decoded;
    /// First buffer of weights, and the sum of the addresses of both.
    weights_first: WeightsFirst;
    weights_both: WeightsBoth;
    /// First buffer of arriving columns, and the sum of the addresses of both.
    arriving_first: ArrivingFirst;
    arriving_both: ArrivingBoth;
    /// First buffer of sums, and the sum of the addresses of both.
    sums_first: SumsFirst;
    sums_both: SumsBoth;
}
