//! Attention on one core of each column: models' heads, pieces of the keys, phases, operations.

use super::*;
use aie_hal::format::instructions::InstructionStream;
use aie_jit_native::NativeCompiler;

fn few(device: &mut Option<Device>, shape: Shape, operands: &Operands) -> Timing {
    compare_family(device, &rings::attention::FAMILY, shape, operands)
}

/// Heads of models, with keys that are whole tiles and not.
#[rstest]
#[case::smollm(Shape::of_one_token(64, 9, 3, 1024))]
#[case::smollm_long(Shape::of_one_token(64, 9, 3, 4096))]
#[case::one_b(Shape::of_one_token(64, 32, 8, 200))]
#[case::eight_b(Shape::of_one_token(128, 32, 8, 90))]
#[case::eighty_elements(Shape::of_one_token(80, 8, 8, 102))]
#[case::large_heads(Shape::of_one_token(256, 4, 1, 50))]
#[case::least(Shape::of_one_token(64, 9, 3, 16))]
#[case::least_and_two(Shape::of_one_token(128, 32, 8, 18))]
fn models(#[case] shape: Shape, #[values(1, 2)] seed: u64) {
    for interleaved in [false, true] {
        let shape = Shape { interleaved, ..shape };
        few(&mut None, shape, &Operands::random(shape, DataType::F16, true, &mut Rng::with_seed(seed)));
    }
}

/// Any number of keys without a mask.
#[rstest]
fn odd_numbers_of_keys(#[values(17, 63, 65, 127, 333)] keys: usize) {
    let shape = Shape::of_one_token(64, 6, 3, keys);
    few(&mut None, shape, &Operands::random(shape, DataType::BF16, false, &mut Rng::with_seed(3)));
}

/// Tokens whose masks take so much memory that keys are pieces, each a phase; the last tile overlaps.
#[test]
fn pieces_of_keys() {
    let shape = Shape { tokens: 8, ..Shape::of_one_token(128, 4, 2, 1998) };
    let (mut device, mut random) = (None, Rng::with_seed(11));
    for _ in 0..2 {
        few(&mut device, shape, &Operands::random(shape, DataType::F16, true, &mut random));
    }
}

/// Dispatches of other sizes on the same load, there and back.
#[test]
fn others_follow() {
    let shapes = [
        Shape::of_one_token(64, 9, 3, 144),
        Shape { tokens: 3, ..Shape::of_one_token(32, 8, 8, 66) },
        Shape::of_one_token(128, 14, 2, 80),
        Shape { tokens: 2, batch: 2, ..Shape::of_one_token(96, 4, 4, 34) },
        // Many items with two tasks each, behind long queries.
        Shape { tokens: 3, ..Shape::of_one_token(16, 128, 32, 18) },
    ];
    let (mut device, mut random) = (None, Rng::with_seed(21));
    for shape in shapes.iter().chain(shapes.iter().rev()) {
        few(&mut device, *shape, &Operands::random(*shape, DataType::F16, true, &mut random));
    }
}

/// Where products are on rings, attention is here; more tokens and sinks are the other family's.
#[test]
fn it_is_chosen_with_products_on_rings() {
    let compiler = NativeCompiler::default().with_products(aie_jit_native::Products::Rings);
    let name = |shape: Shape, sinks: bool| {
        let mut random = Rng::with_seed(1);
        let operands = Operands::random(shape, DataType::F16, true, &mut random);
        let sinks = sinks.then(|| Data::random(Tensor::contiguous(DataType::F32, [shape.heads, 1, 1, 1]), &mut random));
        let kernel = compiler.build(&Operands { sinks, ..operands }.node(shape, 0.125), &aie2()).unwrap();
        kernel.name().to_owned()
    };
    let shape = Shape::of_one_token(64, 9, 3, 64);
    assert_eq!(name(shape, false), "native-rings-attention");
    assert_eq!(name(shape, true), "native-FLASH_ATTN_EXT");
    assert_eq!(name(Shape { tokens: 9, ..shape }, false), "native-FLASH_ATTN_EXT");
}

/// Operations of a layer: a block write once for every eight words. At 1,024 keys they are less than 60 of a column.
#[rstest]
#[case::smollm(64, 9, 3, 1024, 99)]
#[case::smollm_long(64, 9, 3, 32_768, 273)]
#[case::one_b(64, 32, 8, 1024, 72)]
#[case::one_b_long(64, 32, 8, 32_768, 268)]
#[case::eight_b(128, 32, 8, 1024, 72)]
#[case::eight_b_long(128, 32, 8, 32_768, 488)]
fn operations(
    #[case] elements: usize,
    #[case] heads: usize,
    #[case] kv_heads: usize,
    #[case] keys: usize,
    #[case] most: u64,
) {
    let shape = Shape { interleaved: true, ..Shape::of_one_token(elements, heads, kv_heads, keys) };
    let cache = Tensor::contiguous(DataType::F16, [elements, keys, kv_heads, 1]);
    let [nb0, nb1, _, nb3] = cache.nb;
    let cache = Tensor { nb: [nb0, nb1 * kv_heads, nb1, nb3], ..cache };
    let mask = Tensor::contiguous(DataType::F16, [keys, 1, 1, 1]);
    let mut params = OpParams::default();
    params.0[0] = 0.125f32.to_bits().cast_signed();
    let q = Tensor::contiguous(DataType::F32, [elements, 1, heads, 1]);
    let sources = [q, cache, cache, mask].map(Some).to_vec();
    let node = Node::new("FLASH_ATTN_EXT", params, shape.output(), sources);
    let [all, few] = FAMILIES.map(|family| {
        let kernel = (family.build)(&node, &aie2()).unwrap();
        InstructionStream::parse(kernel.instructions()).unwrap().charged_operations()
    });
    println!("{shape:?}: {few} operations; on all cores {all}");
    assert!(few <= most, "{few} operations");
}
