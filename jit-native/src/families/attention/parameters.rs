//! The block of parameters that a dispatch gives each core.

use super::plan::Sizes;
use super::problem::Problem;
use crate::numerics::terms;

/// Offset of the block in the core's memory, and its words.
pub(in crate::families) const OFFSET: u32 = 0;
pub(in crate::families) const WORDS: u32 = 128;
/// Words of an item behind the block's other words: what the mask is multiplied with, for four heads.
const SLOPE_WORDS: u32 = 2;

/// 1.5 * 2^16: the last bit of sums with it is 2^-7.
const POWERS: f32 = 98_304.0;

/// Offset of the slopes of the first item, and from one to the next.
pub(in crate::families) const SLOPES: u32 = OFFSET + 4 * Parameters::WORDS;
pub(in crate::families) const SLOPES_STEP: i64 = 4 * SLOPE_WORDS as i64;

macro_rules! parameters {
    ($($(#[$doc:meta])* $field:ident: $variant:ident;)*) => {
        /// A word of the block, by its place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(in crate::families) enum Parameter { $($variant,)* }

        /// What a core has to know of its part. All sizes are in bytes, addresses as the core sees them.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub(in crate::families) struct Parameters { $($(#[$doc])* pub $field: u32,)* }

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
    /// Keys of a tile by 8 and by 4.
    eights: Eights;
    fours: Fours;
    /// Elements of a key by 16.
    query_steps: QuerySteps;
    /// Elements of a value by 16 and by 4.
    value_groups: ValueGroups;
    value_fours: ValueFours;
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
    /// 1 if this core joins the parts; if it begins them without sinks, or, where one core has all keys, if queries arrive; if there are
    /// sinks.
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
    /// The power of two by which exponentials are larger: one by it, as bf16 twice, and the number to which exponents are added, so that they are
    /// its lowest bits where those of a bf16 are.
    unit: Unit;
    powers: Powers;
    /// A bit for each lane of scores whose head is there.
    head_lanes: HeadLanes;
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
    /// Where one core has all keys: tokens of all items; bytes from item to item of queries in bf16 and of states; the mask of the last
    /// tile; 1 if these are the last keys.
    states: States;
    item_converted: ItemConverted;
    item_state: ItemState;
    mask_last: MaskLast;
    ends: Ends;
}

impl Parameters {
    /// What follows from the problem for tiles of `keys` keys and items of `units` tokens, wherever things are.
    pub fn of(problem: &Problem, sizes: &Sizes, keys: usize, units: usize) -> Self {
        let (k, v) = (problem.k, problem.v);
        let twice = |bf16: u16| u32::from(bf16) << 16 | u32::from(bf16);
        // An exponent that is missing in all products of scores is put into the queries.
        let power = |exponent: i32| 2f64.powi(exponent);
        // A soft cap is made of sigmoids, of twice the score and without the cap.
        let scale = problem.cap.map_or(f64::from(problem.scale), |cap| 2.0 * f64::from(problem.scale) / f64::from(cap));
        let [high, low] = terms(scale * power(k.cache.missing_exponent()));
        let missing = v.cache.missing_exponent();
        let [unit] = terms(power(-missing));
        let (has_mask, has_cap) = (problem.mask.is_some(), problem.cap.is_some());
        Self {
            units: units as u32,
            eights: (keys / 8) as u32,
            fours: (keys / 4) as u32,
            query_steps: (k.elements / 16) as u32,
            value_groups: (v.elements / 16) as u32,
            value_fours: (v.elements / 4) as u32,
            key_conversions: (keys * k.elements / 128) as u32,
            value_conversions: (keys * v.elements / 128) as u32,
            key_type: k.cache.number(),
            value_type: v.cache.number(),
            has_mask: has_mask.into(),
            mask_early: (has_mask && !has_cap).into(),
            mask_late: (has_mask && has_cap).into(),
            has_cap: has_cap.into(),
            cap: problem.cap.map_or(0, |cap| (2.0 * cap).to_bits()),
            has_sinks: problem.sinks.is_some().into(),
            query_bytes: (4 * k.elements) as u32,
            queries_bytes: sizes.queries as u32,
            converted_bytes: sizes.converted as u32,
            factor_high: twice(high),
            factor_low: twice(low),
            unit: twice(unit),
            head_lanes: 0x1111 * ((1 << problem.together()) - 1),
            powers: (POWERS + missing as f32).to_bits(),
            state_bytes: sizes.state as u32,
            ..Self::default()
        }
    }
}
