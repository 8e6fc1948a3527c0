//! The block of parameters that a dispatch gives each core.

/// Offset of the block in the core's memory, and its words.
pub(super) const OFFSET: u32 = 0;
pub(super) const WORDS: u32 = 128;
/// Words of an item behind the block's other words: what the mask is multiplied with, for four heads.
const SLOPE_WORDS: u32 = 2;

/// Offset of the slopes of the first item, and from one to the next.
pub(super) const SLOPES: u32 = OFFSET + 4 * Parameters::WORDS;
pub(super) const SLOPES_STEP: i64 = 4 * SLOPE_WORDS as i64;

macro_rules! parameters {
    ($($(#[$doc:meta])* $field:ident: $variant:ident;)*) => {
        /// A word of the block, by its place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Parameter { $($variant,)* }

        /// What a core has to know of its part. All sizes are in bytes, addresses as the core sees them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(super) struct Parameters { $($(#[$doc])* pub $field: u32,)* }

        impl Parameters {
            const WORDS: u32 = [$(Parameter::$variant),*].len() as u32;

            /// The block, and behind it the slopes of the items.
            pub fn words(&self, slopes: &[[u32; SLOPE_WORDS as usize]]) -> Vec<u32> {
                let mut words = vec![$(self.$field),*];
                words.extend(slopes.iter().flatten());
                words
            }
        }
    };
}

parameters! {
    /// Heads of keys, one after the other.
    items: Items;
    /// Tiles of keys of this core, for each item.
    tiles: Tiles;
    /// Tokens of an item.
    units: Units;
    /// Keys of a tile by 16, by 8 and by 4.
    groups: Groups;
    eights: Eights;
    fours: Fours;
    /// Elements of a key by 8 and by 16.
    key_steps: KeySteps;
    query_steps: QuerySteps;
    /// Elements of a value by 16 and by 4.
    value_groups: ValueGroups;
    value_fours: ValueFours;
    /// Eight rows of values in bf16.
    value_step: ValueStep;
    /// Elements of a tile of keys and of values by 128; of the mask by 32.
    key_conversions: KeyConversions;
    value_conversions: ValueConversions;
    mask_conversions: MaskConversions;
    /// Numbers of the types of keys and values.
    key_type: KeyType;
    value_type: ValueType;
    /// 1 if there is a mask; if it is added with the products of keys and queries; if it is added behind the soft cap.
    has_mask: HasMask;
    mask_early: MaskEarly;
    mask_late: MaskLate;
    /// 1 if there is a soft cap, and twice the cap.
    has_cap: HasCap;
    cap: Cap;
    /// The mask of one token.
    mask_bytes: MaskBytes;
    /// How many keys of the first tile others have, if that is positive, and by how much that grows from tile to tile.
    skip: Skip;
    skip_step: SkipStep;
    /// 1 if this core joins the parts; if it does and begins without sinks; if there are sinks.
    joins: Joins;
    begins: Begins;
    has_sinks: HasSinks;
    /// Query of one head as it arrives; of four heads, as they arrive and in bf16.
    query_bytes: QueryBytes;
    queries_bytes: QueriesBytes;
    converted_bytes: ConvertedBytes;
    /// Queries in bf16.
    converted: Converted;
    /// Two bf16 whose sum queries are multiplied with, each twice in its word.
    factor_high: FactorHigh;
    factor_low: FactorLow;
    /// A power of two that exponentials are multiplied with, as bf16 twice.
    exponent: Exponent;
    /// Scores, and exponentials in bf16.
    scores: Scores;
    exponentials: Exponentials;
    /// Maximum, sum and values of one unit.
    state_bytes: StateBytes;
    /// First buffers, and the sum of the addresses of both.
    keys_first: KeysFirst;
    keys_both: KeysBoth;
    values_first: ValuesFirst;
    values_both: ValuesBoth;
    mask_first: MaskFirst;
    mask_both: MaskBoth;
    /// The only buffers of these.
    queries: Queries;
    part: Part;
    arriving: Arriving;
    result: Result;
}
