// A block of a matrix product: sums over k of rows of source 0 (A) times rows of source 1 (B), a chunk of k at a time.
//
// One object of a fifo has CHUNK elements of one row. B's rows of a chunk are kept, A's rows are used as they come, so that weights
// pass the core once per block. A_TYPE and B_TYPE are the elements, SUM_TYPE (float or int32) is what the result has.
//
// The cores of a column get the same objects and have different words of the result: of its words, row of B by row of B, core c has
// those whose number is c modulo kCores, and in addition the last, which ends every core's last part.
//
// All numbers of a block are in `job`, which the runtime sequence writes; `progress` counts rows and chunks, and is all zero
// between blocks. A DMA reads whole words within a tensor only. What a row's object holds beyond the row's own elements, and where
// they begin in it, is described by `Operand`.

#include "lanes.h"

#include <type_traits>

namespace {

constexpr int kChunk = CHUNK;
/// Rows of A in a block, and words of an object of the result.
[[maybe_unused]] constexpr int kRowsA = 64;
/// Cores that make a block together.
[[maybe_unused]] constexpr int kCores = 4;

/// Where an operand's words are.
struct Operand {
    /// Bytes of the first word before the row's first element.
    int32_t phase;
    /// Words from one row to the next.
    int32_t stride;
    /// Words from the block's first to the end of the tensor. An object that would reach beyond it begins so much earlier.
    int32_t left;
    /// When not 0, the tensor is shorter than an object, which repeats two windows of so many words: its first and its last.
    int32_t window;
    /// Words of the tensor before the block's first, needed for windows only.
    int32_t before;
};

struct Job {
    int32_t blocks, chunks, rows_a, rows_b, objects;
    /// Elements of a row, and of a row in one chunk.
    int32_t length, step;
    Operand a, b;
};

struct Progress {
    int32_t chunk, row_a, row_b, word;
};

/// The index in `object` of the row's first element of this chunk, or -1 where elements are not side by side.
template <typename T>
[[maybe_unused]] inline int first_element(const Operand &o, int words_before) {
    constexpr int words = kChunk * static_cast<int>(sizeof(T)) / 4;
    if (o.window != 0)
        return -1;
    const int beyond = words_before + words - o.left;
    return ((beyond > 0 ? beyond : 0) * 4 + o.phase) / static_cast<int>(sizeof(T));
}

/// Copies a row's `count` elements of this chunk and fills the rest of the chunk with zeros.
template <typename T>
[[maybe_unused]] inline void take(T *__restrict to, const T *__restrict object, const Operand &o, int words_before, int count) {
    constexpr int size = static_cast<int>(sizeof(T));
    constexpr int lanes = 64 / size;
    const int first = first_element<T>(o, words_before);
    if (first == 0 && count == kChunk) {
        for (int k = 0; k < kChunk; k += lanes)
            aie::store_v(to + k, aie::load_v<lanes>(object + k));
        return;
    }
    for (int k = 0; k < kChunk; k += lanes)
        aie::store_v(to + k, aie::zeros<T, lanes>());
    if (first >= 0) {
        for (int k = 0; k < count; ++k)
            to[k] = object[first + k];
        return;
    }
    const int whole = o.before + o.left;
    for (int k = 0; k < count; ++k) {
        const int byte = o.phase + k * size;
        const int word = o.before + words_before + byte / 4;
        const int place = word < o.window ? word : word + 2 * o.window - whole;
        to[k] = object[(place * 4 + byte % 4) / size];
    }
}

#if defined(FLOATS)

#if defined(NARROW)
[[maybe_unused]] inline lanes::Sums multiply_add(lanes::Sums sums, const bfloat16 *a, const bfloat16 *b) {
    return aie::mac(sums, aie::load_v<lanes::kLanes>(a), aie::load_v<lanes::kLanes>(b));
}
#else
[[maybe_unused]] inline lanes::Sums multiply_add(lanes::Sums sums, const A_TYPE *a, const B_TYPE *b) {
    return aie::mac(sums, lanes::load(a), lanes::load(b));
}
#endif

[[maybe_unused]] inline float dot(const A_TYPE *__restrict a, const B_TYPE *__restrict b) {
    lanes::Sums sums(lanes::all(0.0f));
    for (int k = 0; k < kChunk; k += static_cast<int>(lanes::kLanes))
        sums = multiply_add(sums, a + k, b + k);
    return aie::reduce_add(sums.template to_vector<float>());
}

#else

[[maybe_unused]] inline int32_t dot(const A_TYPE *__restrict a, const B_TYPE *__restrict b) {
    constexpr unsigned lanes = 64 / sizeof(A_TYPE);
    auto sums = aie::mul(aie::load_v<lanes>(a), aie::load_v<lanes>(b));
    for (int k = static_cast<int>(lanes); k < kChunk; k += static_cast<int>(lanes))
        sums = aie::mac(sums, aie::load_v<lanes>(a + k), aie::load_v<lanes>(b + k));
    return aie::reduce_add(sums.template to_vector<int32>(0));
}

#endif

#if defined(TILED)

/// Rows of B and of A in a product of matrices, and its sums over k.
constexpr int kTileB = 4, kTileA = 8, kTileK = sizeof(A_TYPE) == 2 && !std::is_same_v<A_TYPE, bfloat16> ? 4 : 8;
/// Elements of a row that are loaded at once.
constexpr int kPiece = 16 / static_cast<int>(sizeof(A_TYPE));
/// Tiles of the kept rows of B.
constexpr int kTilesB = 4;

using Product = aie::mmul<kTileB, kTileK, kTileA, B_TYPE, A_TYPE>;

/// Whether blocks are made of products of matrices: each core then has whole rows, and nobody needs a word of another core. For one
/// row of B a tile would be three quarters of nothing.
[[maybe_unused]] inline bool is_tiled(const Job &job) { return job.rows_a == kRowsA && job.rows_b > 1; }

/// Where the sums of a tile are: that of the core's rows from 8 * `batch` on, and of the kept rows from 4 * `tile` on.
[[maybe_unused]] inline int tile_at(int batch, int tile) { return (batch * kTilesB + tile) * kTileA * kTileB; }

/// Adds to tile `tile` of the products of `b`, rows side by side, with `a`, which is transposed.
template <unsigned N, unsigned M>
inline void add_products(Product &sums, const aie::vector<B_TYPE, N> &b, const aie::vector<A_TYPE, M> &a) {
    if constexpr (kPiece == kTileK) {
        sums.mac(b, a);
    } else {
        sums.mac(aie::filter_even(b, kTileK), a.template extract<M / 2>(0));
        sums.mac(aie::filter_odd(b, kTileK), a.template extract<M / 2>(1));
    }
}

/// Multiplies eight rows of A by all that is kept of B. Kept rows beyond the block's give sums that nobody takes.
[[maybe_unused]] inline void multiply_rows(const A_TYPE *__restrict a, const B_TYPE *__restrict kept, SUM_TYPE *__restrict sums,
                                           int batch, bool is_first) {
    Product products[kTilesB];
    for (int tile = 0; tile < kTilesB; ++tile)
        products[tile] = is_first ? Product(aie::zeros<SUM_TYPE, Product::size_C>())
                                  : Product(aie::load_v<Product::size_C>(sums + tile_at(batch, tile)));
    const auto piece_of_a = [a](int row, int k) { return aie::load_v<kPiece>(a + row * kChunk + k); };
    const auto piece_of_b = [kept](int row, int k) { return aie::load_v<kPiece>(kept + row * kChunk + k); };
    for (int k = 0; k < kChunk; k += kPiece) {
        const auto rows = aie::concat(aie::concat(piece_of_a(0, k), piece_of_a(1, k), piece_of_a(2, k), piece_of_a(3, k)),
                                      aie::concat(piece_of_a(4, k), piece_of_a(5, k), piece_of_a(6, k), piece_of_a(7, k)));
        const auto columns = aie::transpose(rows, kTileA, kPiece);
        for (int tile = 0; tile < kTilesB; ++tile) {
            const int row = tile * kTileB;
            const auto b = aie::concat(piece_of_b(row, k), piece_of_b(row + 1, k), piece_of_b(row + 2, k), piece_of_b(row + 3, k));
            add_products(products[tile], b, columns);
        }
    }
    for (int tile = 0; tile < kTilesB; ++tile)
        aie::store_v(sums + tile_at(batch, tile), products[tile].template to_vector<SUM_TYPE>());
}

/// Where the sum of a row of B and a row of A is.
[[maybe_unused]] inline int sum_at(const Job &job, int row_b, int row_a) {
    if (!is_tiled(job))
        return row_b * kRowsA + row_a;
    const int own = row_a / kCores;
    return tile_at(own / kTileA, row_b / kTileB) + row_b % kTileB * kTileA + own % kTileA;
}

#else

[[maybe_unused]] inline int sum_at(const Job &, int row_b, int row_a) { return row_b * kRowsA + row_a; }

#endif

[[maybe_unused]] inline int elements_in_chunk(const Job &job, int chunk) {
    const int left = job.length - chunk * job.step;
    return left < job.step ? left : job.step;
}

[[maybe_unused]] inline void end_row(const Job &job, Progress &progress) {
    if (++progress.row_a == job.rows_a) {
        progress.row_a = 0;
        if (++progress.chunk == job.chunks)
            progress.chunk = 0;
    }
}

}  // namespace

extern "C" {

#if defined(KEEP_ROW)
/// Keeps a row of B for the chunk.
void CORE_FUNCTION(const B_TYPE *__restrict object, B_TYPE *__restrict kept, const int32_t *__restrict numbers,
                   int32_t *__restrict counters) {
    const Job &job = *reinterpret_cast<const Job *>(numbers);
    Progress &progress = *reinterpret_cast<Progress *>(counters);
    const int words = progress.row_b * job.b.stride + progress.chunk * (job.step * static_cast<int>(sizeof(B_TYPE)) / 4);
    take(kept + progress.row_b * kChunk, object, job.b, words, elements_in_chunk(job, progress.chunk));
    progress.row_b = progress.row_b + 1 == job.rows_b ? 0 : progress.row_b + 1;
}
#elif defined(MULTIPLY_ROW)
/// Multiplies a row of A by the kept rows of B, as far as the results are those of `core`. `rows` has space for eight rows.
void CORE_FUNCTION(const A_TYPE *__restrict object, const B_TYPE *__restrict kept, A_TYPE *__restrict rows,
                   SUM_TYPE *__restrict sums, const int32_t *__restrict numbers, int32_t *__restrict counters, int32_t core) {
    const Job &job = *reinterpret_cast<const Job *>(numbers);
    Progress &progress = *reinterpret_cast<Progress *>(counters);
    lanes::set_modes();
    const int words = progress.row_a * job.a.stride + progress.chunk * (job.step * static_cast<int>(sizeof(A_TYPE)) / 4);
    const int count = elements_in_chunk(job, progress.chunk);
#if defined(TILED)
    if (is_tiled(job)) {
        const int own = progress.row_a / kCores, place = own % kTileA;
        if (progress.row_a % kCores == core) {
            take(rows + place * kChunk, object, job.a, words, count);
            if (place + 1 == kTileA)
                multiply_rows(rows, kept, sums, own / kTileA, progress.chunk == 0);
        }
        end_row(job, progress);
        return;
    }
#endif
    const A_TYPE *row = object;
    bool taken = count == kChunk && first_element<A_TYPE>(job.a, words) == 0;
    for (int j = 0; j < job.rows_b; ++j) {
        const int word = j * job.rows_a + progress.row_a;
        if ((word - core) % kCores != 0 && word + 1 != job.rows_a * job.rows_b)
            continue;
        if (!taken) {
            take(rows, object, job.a, words, count);
            row = rows, taken = true;
        }
        SUM_TYPE &sum = sums[j * kRowsA + progress.row_a];
        const SUM_TYPE product = dot(row, kept + j * kChunk);
        sum = progress.chunk == 0 ? product : SUM_TYPE(sum + product);
    }
    end_row(job, progress);
}
#else
/// Gives the next words of the block's result that are those of `core`. What the last object has beyond the result repeats its last
/// word.
void CORE_FUNCTION(SUM_TYPE *__restrict out, const SUM_TYPE *__restrict sums, const int32_t *__restrict numbers,
                   int32_t *__restrict counters, int32_t core) {
    const Job &job = *reinterpret_cast<const Job *>(numbers);
    Progress &progress = *reinterpret_cast<Progress *>(counters);
    const int total = job.rows_a * job.rows_b;
    const SUM_TYPE last = sums[sum_at(job, job.rows_b - 1, job.rows_a - 1)];
    int word = progress.word + core;
    int row = word / job.rows_a, column = word % job.rows_a;
    for (int place = 0; place < kRowsA / kCores; ++place, word += kCores) {
        out[place] = word < total ? sums[sum_at(job, row, column)] : last;
        for (column += kCores; column >= job.rows_a; column -= job.rows_a)
            ++row;
    }
    progress.word = progress.word + kRowsA >= total ? 0 : progress.word + kRowsA;
}
#endif

}  // extern "C"
