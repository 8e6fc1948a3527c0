//! What an instruction computes, as far as its mnemonic and operands say it.

use aie_isa::{Access, Direction, Extension, Instruction, Kind, Slot};

/// Two 32-bit numbers to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    AddCarry,
    SubBorrow,
    Mul,
    And,
    Or,
    Xor,
    Eq,
    Ne,
    Lt,
    Ge,
    LtUnsigned,
    GeUnsigned,
    LogicalShift,
    ArithmeticShift,
}

/// One 32-bit number to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    Abs,
    LeadingSignBits,
    LeadingZeros,
    Population,
    IsZero,
    IsNotZero,
    Extend { bits: u32, signed: bool },
    Function(Function),
}

/// An approximation that the hardware has of a real function, rounded to the nearest number of the result's type here. How many
/// of the last bits hardware has right is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    Reciprocal,
    SquareRoot,
    InverseSquareRoot,
    /// 2^x.
    Exp2,
    Tanh,
}

/// When a branch is taken, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    Always,
    Zero,
    NotZero,
    /// Counts its register down.
    NotZeroDecrement,
    Return,
}

/// Lanes compared, and what becomes of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    /// s1 < s2.
    Less,
    /// s1 >= s2.
    GreaterEqual,
    /// The larger, and s1 < s2.
    MaxLess,
    /// The smaller, and s1 >= s2.
    MinGreaterEqual,
    /// The difference, and s1 < s2.
    SubLess,
    /// The difference, and s1 >= s2.
    SubGreaterEqual,
    /// The difference or 0, and s1 < s2.
    MaxDifference,
    /// The absolute value, and s1 > 0.
    AbsGreaterZero,
    /// The negative, and s1 > 0.
    NegGreaterZero,
    /// The complement, and s1 < 0.
    NotLessZero,
    /// s1 == 0.
    EqualZero,
}

/// Lanes of two vectors to lanes of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lanes {
    Add,
    Sub,
    And,
    Or,
    /// A bit for each lane chooses.
    Select,
    /// A bit for each lane chooses addition or subtraction.
    AddSub,
}

/// How numbers change their width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Widen {
    /// Shifted left into accumulator lanes; the widths follow from the operands where they are 0.
    Ups { from: u32, to: u32 },
    /// bf16 to fp32.
    Float,
    /// Twice the bits.
    Unpack { from: u32 },
}

/// How numbers lose width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Narrow {
    /// Shifted right out of accumulator lanes, rounded, saturated.
    Srs { from: u32, to: u32 },
    /// fp32 to bf16.
    Float,
    /// fp32 to mantissas of 8 bits with an exponent for each eight of them.
    BlockFloat,
    /// A function of fp32, as bf16.
    Function(Function),
    /// Half the bits.
    Pack { from: u32 },
}

/// What is added to what in the vec slot. The signs of the configuration word are combined with these by exclusive or.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accumulate {
    /// Number of accumulators read.
    pub accumulators: u8,
    /// Whether there is a product.
    pub product: bool,
    pub negate_product: bool,
    pub negate_first: bool,
    pub negate_second: bool,
    pub float: bool,
}

/// An operation, with everything that the mnemonic says. Sources and results are in the order of the operands, without those of
/// the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Nop,
    /// Only the address is updated.
    Pointer,
    Binary(Binary),
    Unary(Unary),
    MultiplyAdd {
        negate: bool,
    },
    /// A bit of the quotient, into r31 from below, while the dividend leaves it at the top. d is the remainder so far.
    DivisionStep,
    /// d = a if the third source is zero (or not), else b.
    SelectScalar {
        zero: bool,
    },
    Move,
    /// Zero everything.
    Clear,
    Branch {
        when: Branch,
        link: bool,
    },
    Acquire {
        conditional: bool,
    },
    Release {
        conditional: bool,
    },
    /// Raises an event; the number is the operand unless the mnemonic says it.
    Event {
        number: Option<u32>,
    },
    Done,
    Load {
        extension: Option<Extension>,
        widen: Option<Widen>,
    },
    Store {
        narrow: Option<Narrow>,
        bytes: u32,
    },
    StreamRead {
        blocking: bool,
    },
    StreamWrite {
        blocking: bool,
        last: bool,
        /// Whether the last source says that the word is the last.
        last_by_source: bool,
        header: Option<Header>,
    },
    /// A value of 512 bits to a part of a register: its size times this number.
    CascadeRead {
        part: u8,
    },
    CascadeWrite,
    Widen(Widen),
    Narrow(Narrow),
    FloorFloat,
    Lanes(Lanes, u32),
    Compare(Compare, LaneType),
    Broadcast(u32),
    BroadcastShuffle(u32),
    Extract(u32),
    ExtractBroadcast(u32),
    ExtractBroadcastShuffle(u32),
    Insert(u32),
    PushLow(u32),
    PushHigh(u32),
    Shift,
    Shuffle,
    Accumulate(Accumulate),
    /// The counter of cycles.
    Counter,
    /// In the tables, but without a model, for this reason.
    Unmodelled(&'static str),
}

/// What a packet header word is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Packet,
    ControlPacket,
}

/// The numbers in the lanes of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneType {
    Integer(u32),
    Bfloat16,
}

/// Why instructions have no model.
mod reason {
    pub const CASCADE: &str = "only moves of 512 bits between the cascade and a register are modelled";
    pub const EBS16: &str = "the format bfp16ebs16 is not described publicly";
    pub const FIFO: &str = "load and store fifos are not described publicly";
    pub const FIXED: &str = "the conversions from and to fixed point are not described publicly";
    pub const GATHER: &str = "how the addresses of a gather are made is not described publicly";
    pub const ALIGN: &str = "what the first amount of vshift.align does is not public";
    pub const SPARSE: &str = "sparse and compressed operands are not described publicly";
    pub const TILE: &str = "registers of the tile are not modelled as memory of the core";
    pub const OTHER: &str = "what it computes is not public";
}

/// Whether one of the factors is sparse: their registers are a vector and a mask.
fn is_sparse(instruction: &Instruction) -> bool {
    let key = instruction.key;
    instruction.slot == Slot::Vec && (key.contains("sparse") || key.split('_').any(|part| part.starts_with('Q')))
}

/// The operation of an instruction.
pub fn of(instruction: &Instruction) -> Operation {
    use Operation as O;
    let (mnemonic, access) = (instruction.mnemonic, instruction.access);
    let has_result = instruction.operands.iter().any(|operand| operand.direction == Direction::Write);
    let parts: Vec<&str> = mnemonic.split('.').filter(|part| !matches!(*part, "2d" | "3d")).collect();
    let (head, rest) = (parts[0], &parts[1..]);
    let bits = |part: Option<&&str>| {
        part.map_or(0, |part| part.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0))
    };
    let width = bits(rest.last());
    if let Some(operation) = scalar(head, rest) {
        return match (operation, instruction.syntax.split_once('#')) {
            // AIE2P has an instruction for each number.
            (O::Event { .. }, Some((_, number))) => O::Event { number: number.parse().ok() },
            _ => operation,
        };
    }
    let by_register = instruction.operands.iter().any(|operand| matches!(operand.kind, Kind::Fixed(_)));
    if instruction.flags.stream {
        let blocking = !rest.contains(&"nb");
        let header = if rest.contains(&"ph") {
            Some(Header::Packet)
        } else {
            rest.contains(&"cph").then_some(Header::ControlPacket)
        };
        let last = rest.contains(&"tlast");
        return if has_result {
            O::StreamRead { blocking }
        } else {
            O::StreamWrite { blocking, last, last_by_source: by_register, header }
        };
    }
    if instruction.flags.cascade {
        return match (head, rest, has_result) {
            // The forms with r31 choose the quarter when they run.
            ("vmov", [], true) if !by_register => O::CascadeRead { part: 0 },
            ("vmov", ["lo" | "0"], true) => O::CascadeRead { part: 0 },
            ("vmov", ["hi" | "1"], true) => O::CascadeRead { part: 1 },
            ("vmov", ["2"], true) => O::CascadeRead { part: 2 },
            ("vmov", ["3"], true) => O::CascadeRead { part: 3 },
            ("vmov", [], false) => O::CascadeWrite,
            _ => O::Unmodelled(reason::CASCADE),
        };
    }
    if instruction.syntax.contains("fx2flt") || instruction.syntax.contains("flt2fx") {
        return O::Unmodelled(reason::FIXED);
    }
    if is_sparse(instruction) {
        return O::Unmodelled(reason::SPARSE);
    }
    let conversion = rest.iter().position(|part| matches!(*part, "ups" | "srs" | "conv" | "unpack" | "pack"));
    let widen = |kind: &str, rest: &[&str]| match kind {
        "ups" => Widen::Ups { to: bits(rest.first()), from: bits(rest.get(1)) },
        "conv" => Widen::Float,
        _ => Widen::Unpack { from: bits(rest.get(1)) },
    };
    let narrow = |kind: &str, rest: &[&str]| match kind {
        "srs" => Narrow::Srs { to: bits(rest.first()), from: bits(rest.get(1)) },
        "conv" => Narrow::Float,
        _ => Narrow::Pack { from: bits(rest.get(1)) },
    };
    match access {
        Some(Access::Load { extension, .. }) => {
            let widen = conversion.map(|at| widen(rest[at], &rest[at + 1..]));
            return O::Load { extension, widen };
        }
        Some(Access::Store { bytes } | Access::PartWordStore { bytes }) => {
            let narrow = conversion.map(|at| narrow(rest[at], &rest[at + 1..]));
            return O::Store { narrow, bytes };
        }
        Some(Access::LoadTileRegister | Access::StoreTileRegister) => return O::Unmodelled(reason::TILE),
        Some(Access::Gather) => return O::Unmodelled(reason::GATHER),
        Some(Access::LoadStream) if head == "vldb" && matches!(rest.first(), Some(&"compr" | &"sparse")) => {
            return O::Unmodelled(reason::SPARSE);
        }
        Some(Access::LoadStream | Access::StoreStream) => return O::Unmodelled(reason::FIFO),
        None => {}
    }
    let lanes = if rest.last() == Some(&"bf16") { LaneType::Bfloat16 } else { LaneType::Integer(width) };
    let compare = |compare, bits| O::Compare(compare, if bits == 0 { lanes } else { LaneType::Integer(bits) });
    match head {
        "vups" => O::Widen(widen("ups", rest)),
        "vunpack" => O::Widen(widen("unpack", rest)),
        "vconv" if rest == ["fp32", "bf16"] => O::Widen(Widen::Float),
        "vconv" if rest == ["bf16", "fp32"] => O::Narrow(Narrow::Float),
        "vsrs" | "vsrsm" => O::Narrow(narrow("srs", rest)),
        "vpack" => O::Narrow(narrow("pack", rest)),
        "vfloor" if rest == ["s32", "bf16"] => O::FloorFloat,
        "mov" if instruction.syntax.ends_with("cntr") => O::Counter,
        "mov" | "vmov" => O::Move,
        "vclr" => O::Clear,
        "vband" => O::Lanes(Lanes::And, 32),
        "vbor" => O::Lanes(Lanes::Or, 32),
        "vsel" => O::Lanes(Lanes::Select, width),
        "vaddsub" => O::Lanes(Lanes::AddSub, width),
        "vadd" if width > 0 => O::Lanes(Lanes::Add, width),
        "vsub" if width > 0 => O::Lanes(Lanes::Sub, width),
        "vlt" => compare(Compare::Less, 0),
        "vge" => compare(Compare::GreaterEqual, 0),
        "vmax_lt" => compare(Compare::MaxLess, 0),
        "vmin_ge" => compare(Compare::MinGreaterEqual, 0),
        "vsub_lt" => compare(Compare::SubLess, 0),
        "vsub_ge" => compare(Compare::SubGreaterEqual, 0),
        "vmaxdiff_lt" => compare(Compare::MaxDifference, 0),
        "vabs_gtz" => compare(Compare::AbsGreaterZero, 0),
        "vneg_gtz" => compare(Compare::NegGreaterZero, 0),
        "vneg_gtz8" => compare(Compare::NegGreaterZero, 8),
        "vneg_gtz16" => compare(Compare::NegGreaterZero, 16),
        "vneg_gtz32" => compare(Compare::NegGreaterZero, 32),
        "vbneg_ltz" => compare(Compare::NotLessZero, 0),
        "veqz" => compare(Compare::EqualZero, 0),
        "vbcst" => O::Broadcast(width),
        "vbcstshfl" => O::BroadcastShuffle(width),
        "vextract" => O::Extract(width),
        "vextbcst" => O::ExtractBroadcast(width),
        "vinsert" => O::Insert(width),
        "vpush" if rest.first() == Some(&"lo") => O::PushLow(width),
        "vpush" if rest.first() == Some(&"hi") => O::PushHigh(width),
        "vshift" if rest.is_empty() => O::Shift,
        "vshuffle" => O::Shuffle,
        "vextbcstshfl" => O::ExtractBroadcastShuffle(width),
        "vexp2" => O::Narrow(Narrow::Function(Function::Exp2)),
        "vtanh" => O::Narrow(Narrow::Function(Function::Tanh)),
        "vconv" if rest == ["bfp16ebs8", "fp32"] => O::Narrow(Narrow::BlockFloat),
        "vconv" => O::Unmodelled(reason::EBS16),
        "vshift" => O::Unmodelled(reason::ALIGN),
        "divs" => O::DivisionStep,
        "inv" => O::Unary(Unary::Function(Function::Reciprocal)),
        "sqrt" => O::Unary(Unary::Function(Function::SquareRoot)),
        "invsqrt" => O::Unary(Unary::Function(Function::InverseSquareRoot)),
        _ => accumulate(head, rest).map_or(O::Unmodelled(reason::OTHER), O::Accumulate),
    }
}

fn scalar(head: &str, rest: &[&str]) -> Option<Operation> {
    use Operation as O;
    let conditional = rest == ["cond"];
    Some(match (head, rest) {
        (nop, []) if nop.starts_with("nop") => O::Nop,
        ("padda" | "paddb" | "padds" | "paddxm", _) => O::Pointer,
        ("add", ["nc"] | []) => O::Binary(Binary::Add),
        ("sub", []) => O::Binary(Binary::Sub),
        ("adc", []) => O::Binary(Binary::AddCarry),
        ("sbc", []) => O::Binary(Binary::SubBorrow),
        ("mul", []) => O::Binary(Binary::Mul),
        ("and", []) => O::Binary(Binary::And),
        ("or", []) => O::Binary(Binary::Or),
        ("xor", []) => O::Binary(Binary::Xor),
        ("eq", []) => O::Binary(Binary::Eq),
        ("ne", []) => O::Binary(Binary::Ne),
        ("lt", []) => O::Binary(Binary::Lt),
        ("ge", []) => O::Binary(Binary::Ge),
        ("ltu", []) => O::Binary(Binary::LtUnsigned),
        ("geu", []) => O::Binary(Binary::GeUnsigned),
        ("lshl", []) => O::Binary(Binary::LogicalShift),
        ("ashl", []) => O::Binary(Binary::ArithmeticShift),
        ("mac", []) => O::MultiplyAdd { negate: false },
        ("msc", []) => O::MultiplyAdd { negate: true },
        ("abs", []) => O::Unary(Unary::Abs),
        ("clb", []) => O::Unary(Unary::LeadingSignBits),
        ("clz", []) => O::Unary(Unary::LeadingZeros),
        ("popcount", []) => O::Unary(Unary::Population),
        ("eqz", []) => O::Unary(Unary::IsZero),
        ("nez", []) => O::Unary(Unary::IsNotZero),
        ("extend", ["s8"]) => O::Unary(Unary::Extend { bits: 8, signed: true }),
        ("extend", ["s16"]) => O::Unary(Unary::Extend { bits: 16, signed: true }),
        ("extend", ["u8"]) => O::Unary(Unary::Extend { bits: 8, signed: false }),
        ("extend", ["u16"]) => O::Unary(Unary::Extend { bits: 16, signed: false }),
        ("sel", ["eqz"]) => O::SelectScalar { zero: true },
        ("sel", ["nez"]) => O::SelectScalar { zero: false },
        ("movx" | "mova" | "movxm" | "movs", []) => O::Move,
        ("j", []) => O::Branch { when: Branch::Always, link: false },
        ("jl", []) => O::Branch { when: Branch::Always, link: true },
        ("jz", []) => O::Branch { when: Branch::Zero, link: false },
        ("jnz", []) => O::Branch { when: Branch::NotZero, link: false },
        ("jnzd", []) => O::Branch { when: Branch::NotZeroDecrement, link: false },
        ("ret", []) => O::Branch { when: Branch::Return, link: false },
        ("acq", _) => O::Acquire { conditional },
        ("rel", _) => O::Release { conditional },
        ("event", []) => O::Event { number: None },
        ("event", ["warning"]) => O::Event { number: Some(2) },
        ("event", ["error"]) => O::Event { number: Some(3) },
        ("done", []) => O::Done,
        _ => return None,
    })
}

/// `vmac`, `vnegmsc.f`, `vaddmac`, `vsub`: signs are in the name.
fn accumulate(head: &str, rest: &[&str]) -> Option<Accumulate> {
    let float = match rest {
        [] => false,
        ["f"] => true,
        _ => return None,
    };
    let one = |negate_first, negate_product| (1, true, negate_product, negate_first, false);
    let two = |negate_first, negate_second, negate_product| (2, true, negate_product, negate_first, negate_second);
    let (accumulators, product, negate_product, negate_first, negate_second) = match head {
        "vmul" => (0, true, false, false, false),
        "vnegmul" => (0, true, true, false, false),
        "vmac" => one(false, false),
        "vmsc" => one(false, true),
        "vnegmac" => one(true, false),
        "vnegmsc" => one(true, true),
        "vaddmac" => two(false, false, false),
        "vaddmsc" => two(false, false, true),
        "vsubmac" => two(false, true, false),
        "vsubmsc" => two(false, true, true),
        "vadd" => (2, false, false, false, false),
        "vsub" => (2, false, false, false, true),
        "vnegadd" => (2, false, false, true, true),
        "vnegsub" => (2, false, false, true, false),
        "vneg" => (1, false, false, true, false),
        _ => return None,
    };
    Some(Accumulate { accumulators, product, negate_product, negate_first, negate_second, float })
}
