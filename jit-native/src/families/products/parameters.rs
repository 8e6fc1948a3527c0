//! The block of parameters that a dispatch gives each core. That of phases of vectors is in [`super::vectors`].

/// Offset of the block in the core's memory, and its words: whole vectors, since buffers follow.
pub(super) const OFFSET: u32 = 0;
pub(super) const WORDS: u32 = 48;

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
    /// Units of columns: of 16 if `wide`, else of one block.
    units: Units;
    /// 1 if columns come in units of 16.
    wide: Wide;
    /// Steps of 8 `k` in a chunk.
    steps: Steps;
    /// Number of the type of weights.
    weights: Weights;
    /// Blocks of 32, or steps of so many `k`, in a row of a chunk; pairs of blocks, 0 if there are none; and what is decoded at
    /// once of blocks of 256.
    blocks: Blocks;
    pairs: Pairs;
    runs: Runs;
    /// Words with scales in a row of a chunk, 0 if there are none; the place of the first one, and from one to the next.
    scale_words: ScaleWords;
    scales_at: ScalesAt;
    scales_period: ScalesPeriod;
    /// Number of the form of columns: their type, and whether `k` are interleaved.
    form: Form;
    /// If they are: groups of twice as many `k` as lie between those that meet, sixteens in such a half, and from one half to the
    /// other, and back to the next sixteen.
    halves: Halves;
    sixteens: Sixteens;
    to_upper: ToUpper;
    to_next: ToNext;
    /// 1 if columns arrive for every tile, 0 if only for the first.
    columns_every_time: ColumnsEveryTime;
    /// Sums of one block of columns.
    sums_stride: SumsStride;
    /// One column of a chunk, as it arrives.
    column_bytes: ColumnBytes;
    /// Blocks of columns in a unit.
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
    /// First buffer of arriving columns, from one to the next, and the end of the last.
    arriving_first: ArrivingFirst;
    arriving_stride: ArrivingStride;
    arriving_end: ArrivingEnd;
    /// First buffer of sums, and the sum of the addresses of both.
    sums_first: SumsFirst;
    sums_both: SumsBoth;
    /// For prompts: halves of a chunk, 64 `k` each, and bytes of one of converted columns and of weights; chunks of all tiles; pieces in which the
    /// columns of a chunk arrive, and how many of them are converted behind each group of rows; sums of a group.
    chunk_halves: ChunkHalves;
    half_bytes: HalfBytes;
    half_weights: HalfWeights;
    all_chunks: AllChunks;
    pieces: Pieces;
    share: Share;
    group_bytes: GroupBytes;
    /// Of block floating point: exponents of converted columns, and of decoded weights.
    exponents: Exponents;
    decoded_exponents: DecodedExponents;
}
