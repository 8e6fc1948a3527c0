/* Runs operations and memory functions of a backend library through ggml's public API, whatever ggml it is linked to,
 * and compares every result with ggml's CPU backend.
 *
 *     abi_test LIBRARY DEVICE     e.g. abi_test /path/libggml-hsa.so HSA0
 *
 * ggml changed the tables of callbacks between a backend and itself several times, without a sign its loader looks at. A
 * wrong table calls the wrong function. So beside the operations there is a case for each group of members behind the
 * places where something was inserted.
 *
 * The output has the form of ggml's test-backend-ops: a line per case, `N/M tests passed`, and `Backend NAME: OK`. Exit
 * code 0 if all cases passed, 1 if one did not, 2 if the program was called wrongly or the device is not there. */

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The limits of ggml's own test of the same operations. */
#define LIMIT_ADD 1e-7
#define LIMIT_MUL_MAT 5e-4

#define COUNT(array) ((int) (sizeof(array) / sizeof((array)[0])))

static ggml_backend_dev_t device;
static ggml_backend_t tested;
static ggml_backend_t reference;
static int passed;
static int cases;

/* ---- numbers ---- */

static uint32_t random_state = 1;

static float random_float(void) {
    random_state = random_state * 1664525u + 1013904223u;
    return (float) (random_state >> 8) / (float) (1 << 23) - 1.0f;
}

static void * allocate(size_t bytes) {
    void * memory = calloc(1, bytes);
    if (memory == NULL) {
        fprintf(stderr, "abi_test: no memory for %zu bytes\n", bytes);
        exit(2);
    }
    return memory;
}

/* Random numbers in the layout of a contiguous `tensor`. */
static void * random_data(const struct ggml_tensor * tensor) {
    const int64_t count = ggml_nelements(tensor);
    float * numbers = allocate((size_t) count * sizeof(float));
    for (int64_t i = 0; i < count; i++) {
        numbers[i] = random_float();
    }
    if (tensor->type == GGML_TYPE_F32) {
        return numbers;
    }
    void * data = allocate(ggml_nbytes(tensor));
    ggml_quantize_chunk(tensor->type, numbers, data, 0, ggml_nrows(tensor), tensor->ne[0], NULL);
    free(numbers);
    return data;
}

/* The numbers of a contiguous f32 or f16 tensor, wherever it is. */
static float * numbers_of(const struct ggml_tensor * tensor) {
    const int64_t count = ggml_nelements(tensor);
    float * numbers = allocate((size_t) count * sizeof(float));
    if (tensor->type == GGML_TYPE_F32) {
        ggml_backend_tensor_get(tensor, numbers, 0, ggml_nbytes(tensor));
    } else {
        ggml_fp16_t * halves = allocate(ggml_nbytes(tensor));
        ggml_backend_tensor_get(tensor, halves, 0, ggml_nbytes(tensor));
        ggml_fp16_to_fp32_row(halves, numbers, count);
        free(halves);
    }
    return numbers;
}

/* Mean squared difference over mean square of the expected numbers; not a number if one of them is not. */
static double nmse(const float * given, const float * expected, int64_t count) {
    double difference = 0.0;
    double square = 0.0;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double) given[i] - (double) expected[i];
        difference += d * d;
        square += (double) expected[i] * (double) expected[i];
    }
    return difference / square;
}

/* ---- lines ---- */

static void result(bool good, const char * detail) {
    cases++;
    passed += good;
    printf("%s%s%s\n", detail, detail[0] != '\0' ? " " : "", good ? "OK" : "FAIL");
    fflush(stdout);
}

/* A NaN fails. */
static void result_nmse(double worst, double limit) {
    char detail[64] = "";
    const bool good = worst <= limit;
    if (!good) {
        snprintf(detail, sizeof(detail), "NMSE = %g > %g", worst, limit);
    }
    result(good, detail);
}

static void begin(const char * operation, const char * parameters) {
    printf("  %s(%s): ", operation, parameters);
    fflush(stdout); /* a crash is then seen in the case it happened in */
}

/* ---- operations ---- */

struct operation_case {
    bool is_product;       /* MUL_MAT, else ADD */
    enum ggml_type type_a;
    enum ggml_type type_b;
    int64_t a[4];
    int64_t b[4];
    bool permuted;         /* both sources are stored with dimensions 1 and 2 exchanged */
};

/* One graph of one operation on one backend. As in a model, the first source of a product is a weight. */
struct operation_graph {
    struct ggml_context * weights;
    struct ggml_context * rest;
    ggml_backend_buffer_t weights_buffer;
    ggml_backend_buffer_t rest_buffer;
    struct ggml_tensor * a;
    struct ggml_tensor * b;
    struct ggml_tensor * out;
    struct ggml_cgraph * graph;
};

static struct ggml_context * new_context(void) {
    const struct ggml_init_params params = {
        /* .mem_size   = */ ggml_tensor_overhead() * 32 + ggml_graph_overhead(),
        /* .mem_buffer = */ NULL,
        /* .no_alloc   = */ true,
    };
    struct ggml_context * context = ggml_init(params);
    if (context == NULL) {
        fprintf(stderr, "abi_test: ggml_init failed\n");
        exit(2);
    }
    return context;
}

static struct ggml_tensor * source(struct ggml_context * context, enum ggml_type type, const int64_t * ne, bool permuted) {
    return permuted ? ggml_new_tensor_4d(context, type, ne[0], ne[2], ne[1], ne[3])
                    : ggml_new_tensor_4d(context, type, ne[0], ne[1], ne[2], ne[3]);
}

static bool build(struct operation_graph * g, const struct operation_case * c, ggml_backend_t backend) {
    memset(g, 0, sizeof(*g));
    g->weights = new_context();
    g->rest = new_context();
    g->a = source(g->weights, c->type_a, c->a, c->permuted);
    g->b = source(g->rest, c->type_b, c->b, c->permuted);
    struct ggml_tensor * a = c->permuted ? ggml_permute(g->rest, g->a, 0, 2, 1, 3) : g->a;
    struct ggml_tensor * b = c->permuted ? ggml_permute(g->rest, g->b, 0, 2, 1, 3) : g->b;
    g->out = c->is_product ? ggml_mul_mat(g->rest, a, b) : ggml_add(g->rest, a, b);
    g->graph = ggml_new_graph(g->rest);
    ggml_build_forward_expand(g->graph, g->out);
    if (!ggml_backend_supports_op(backend, g->out)) {
        return false;
    }
    g->weights_buffer = ggml_backend_alloc_ctx_tensors(g->weights, backend);
    if (g->weights_buffer == NULL) {
        return false;
    }
    if (c->is_product) {
        ggml_backend_buffer_set_usage(g->weights_buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    }
    g->rest_buffer = ggml_backend_alloc_ctx_tensors(g->rest, backend);
    return g->rest_buffer != NULL;
}

static void free_graph(struct operation_graph * g) {
    ggml_backend_buffer_free(g->weights_buffer);
    ggml_backend_buffer_free(g->rest_buffer);
    ggml_free(g->weights);
    ggml_free(g->rest);
}

static void describe(const struct operation_case * c, char * text, size_t size) {
    snprintf(
        text, size, "type_a=%s,type_b=%s,a=[%d,%d,%d,%d],b=[%d,%d,%d,%d],permuted=%d", ggml_type_name(c->type_a),
        ggml_type_name(c->type_b), (int) c->a[0], (int) c->a[1], (int) c->a[2], (int) c->a[3], (int) c->b[0],
        (int) c->b[1], (int) c->b[2], (int) c->b[3], c->permuted);
}

static void run_operation(const struct operation_case * c) {
    char parameters[256];
    describe(c, parameters, sizeof(parameters));
    begin(c->is_product ? "MUL_MAT" : "ADD", parameters);

    struct operation_graph ours;
    struct operation_graph theirs;
    const bool ours_built = build(&ours, c, tested);
    const bool theirs_built = build(&theirs, c, reference);
    double worst = 0.0;
    if (!ours_built || !theirs_built) {
        result(false, ours_built ? "the CPU backend does not run it" : "the device does not claim it or has no memory");
    } else {
        void * a = random_data(ours.a);
        ggml_backend_tensor_set(ours.a, a, 0, ggml_nbytes(ours.a));
        ggml_backend_tensor_set(theirs.a, a, 0, ggml_nbytes(theirs.a));
        free(a);
        bool ran = true;
        /* The second time with other numbers: a backend that keeps what it made of a graph must still read its inputs. */
        for (int round = 0; round < 2; round++) {
            ggml_backend_tensor_memset(ours.out, 0xff, 0, ggml_nbytes(ours.out));
            void * b = random_data(ours.b);
            ggml_backend_tensor_set(ours.b, b, 0, ggml_nbytes(ours.b));
            ggml_backend_tensor_set(theirs.b, b, 0, ggml_nbytes(theirs.b));
            free(b);
            ran = ran && ggml_backend_graph_compute(tested, ours.graph) == GGML_STATUS_SUCCESS;
            ran = ran && ggml_backend_graph_compute(reference, theirs.graph) == GGML_STATUS_SUCCESS;
            float * given = numbers_of(ours.out);
            float * expected = numbers_of(theirs.out);
            const double error = nmse(given, expected, ggml_nelements(ours.out));
            if (!(error <= worst)) {
                worst = error;
            }
            free(given);
            free(expected);
        }
        if (ran) {
            result_nmse(worst, c->is_product ? LIMIT_MUL_MAT : LIMIT_ADD);
        } else {
            result(false, "graph_compute failed");
        }
    }
    free_graph(&ours);
    free_graph(&theirs);
}

static void run_sums(void) {
    static const enum ggml_type types[][2] = {
        {GGML_TYPE_F32, GGML_TYPE_F32}, {GGML_TYPE_F16, GGML_TYPE_F16}, {GGML_TYPE_F16, GGML_TYPE_F32}};
    static const int64_t shapes[][2][4] = {
        {{1, 1, 1, 1}, {1, 1, 1, 1}},    {{10, 5, 4, 3}, {10, 5, 4, 3}}, {{16, 5, 4, 3}, {1, 1, 1, 1}},
        {{16, 10, 4, 3}, {16, 1, 1, 1}}, {{16, 10, 4, 3}, {16, 5, 1, 1}}, {{16, 5, 8, 3}, {16, 5, 4, 1}},
        {{20, 10, 8, 6}, {10, 5, 4, 3}}, {{2048, 7, 1, 1}, {2048, 1, 1, 1}}};
    for (int t = 0; t < COUNT(types); t++) {
        for (int s = 0; s < COUNT(shapes); s++) {
            struct operation_case c = {.type_a = types[t][0], .type_b = types[t][1]};
            memcpy(c.a, shapes[s][0], sizeof(c.a));
            memcpy(c.b, shapes[s][1], sizeof(c.b));
            run_operation(&c);
        }
        struct operation_case c = {
            .type_a = types[t][0], .type_b = types[t][1], .a = {33, 6, 4, 2}, .b = {33, 6, 1, 2}, .permuted = true};
        run_operation(&c);
    }
}

static void run_products(void) {
    static const enum ggml_type types[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q4_0, GGML_TYPE_Q8_0};
    static const int64_t shapes[][2][4] = {
        {{256, 16, 1, 1}, {256, 1, 1, 1}}, {{256, 16, 1, 1}, {256, 9, 1, 1}},  {{96, 129, 1, 1}, {96, 31, 1, 1}},
        {{1056, 64, 1, 1}, {1056, 7, 1, 1}}, {{64, 32, 3, 2}, {64, 5, 3, 2}},  {{64, 32, 3, 2}, {64, 5, 6, 6}},
        {{576, 576, 1, 1}, {576, 1, 1, 1}}};
    for (int t = 0; t < COUNT(types); t++) {
        for (int s = 0; s < COUNT(shapes); s++) {
            struct operation_case c = {.is_product = true, .type_a = types[t], .type_b = GGML_TYPE_F32};
            memcpy(c.a, shapes[s][0], sizeof(c.a));
            memcpy(c.b, shapes[s][1], sizeof(c.b));
            run_operation(&c);
        }
    }
    for (int t = 0; t < 2; t++) { /* types without blocks: odd lengths, and strides as in attention */
        struct operation_case odd = {
            .is_product = true, .type_a = types[t], .type_b = GGML_TYPE_F32, .a = {17, 5, 1, 1}, .b = {17, 3, 1, 1}};
        run_operation(&odd);
        struct operation_case strided = {.is_product = true,
                                         .type_a = types[t],
                                         .type_b = GGML_TYPE_F32,
                                         .a = {64, 48, 3, 1},
                                         .b = {64, 5, 9, 1},
                                         .permuted = true};
        run_operation(&strided);
    }
}

/* ---- memory, streams, scheduling ---- */

/* A tensor of bytes in a buffer of its own. */
struct bytes {
    struct ggml_context * context;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor * tensor;
};

#define BYTES 5000

static struct bytes new_bytes(ggml_backend_t backend) {
    struct bytes b;
    b.context = new_context();
    b.tensor = ggml_new_tensor_1d(b.context, GGML_TYPE_I8, BYTES);
    b.buffer = ggml_backend_alloc_ctx_tensors(b.context, backend);
    if (b.buffer == NULL) {
        fprintf(stderr, "abi_test: %s has no memory\n", ggml_backend_name(backend));
        exit(1);
    }
    return b;
}

static void free_bytes(struct bytes b) {
    ggml_backend_buffer_free(b.buffer);
    ggml_free(b.context);
}

static void fill_pattern(uint8_t * data, int seed) {
    for (int i = 0; i < BYTES; i++) {
        data[i] = (uint8_t) (i * 7 + seed + i / 256);
    }
}

static bool holds(const struct bytes b, const uint8_t * expected) {
    uint8_t data[BYTES];
    ggml_backend_tensor_get(b.tensor, data, 0, BYTES);
    return memcmp(data, expected, BYTES) == 0;
}

static void run_memory(void) {
    uint8_t expected[BYTES];
    uint8_t other[BYTES];
    struct bytes ours = new_bytes(tested);
    struct bytes more = new_bytes(tested);
    struct bytes theirs = new_bytes(reference);

    begin("TENSOR_SET", "part");
    fill_pattern(expected, 1);
    ggml_backend_tensor_set(ours.tensor, expected, 0, BYTES);
    fill_pattern(other, 2);
    ggml_backend_tensor_set(ours.tensor, other, 1001, 999);
    memcpy(expected + 1001, other, 999);
    result(holds(ours, expected), "");

    begin("TENSOR_GET", "part");
    uint8_t part[77] = {0};
    ggml_backend_tensor_get(ours.tensor, part, 990, sizeof(part));
    result(memcmp(part, expected + 990, sizeof(part)) == 0, "");

    begin("TENSOR_MEMSET", "part");
    ggml_backend_tensor_memset(ours.tensor, 0x5a, 3, 100);
    memset(expected + 3, 0x5a, 100);
    result(holds(ours, expected), "");

    begin("TENSOR_COPY", "to the CPU and back, and within the device");
    ggml_backend_tensor_copy(ours.tensor, theirs.tensor);
    const bool there = holds(theirs, expected);
    ggml_backend_buffer_clear(ours.buffer, 0);
    ggml_backend_tensor_copy(theirs.tensor, ours.tensor);
    ggml_backend_tensor_copy(ours.tensor, more.tensor);
    result(there && holds(ours, expected) && holds(more, expected), "");

    begin("BUFFER_CLEAR", "");
    ggml_backend_buffer_clear(ours.buffer, 0xc3);
    memset(expected, 0xc3, BYTES);
    result(holds(ours, expected), "");

    begin("ASYNC", "set, get, copy, synchronize");
    fill_pattern(expected, 3);
    memset(other, 0, BYTES);
    ggml_backend_tensor_set_async(tested, ours.tensor, expected, 0, BYTES);
    ggml_backend_tensor_copy_async(tested, tested, ours.tensor, more.tensor);
    ggml_backend_tensor_get_async(tested, more.tensor, other, 0, BYTES);
    ggml_backend_synchronize(tested);
    result(memcmp(expected, other, BYTES) == 0 && holds(ours, expected), "");

    /* From ggml 0.10 on; looked up, because the program is also built for versions without it. */
    typedef void (*set_2d)(struct ggml_tensor *, const void *, size_t, size_t, size_t, size_t, size_t);
    typedef void (*get_2d)(const struct ggml_tensor *, void *, size_t, size_t, size_t, size_t, size_t);
    const set_2d set = (set_2d) dlsym(RTLD_DEFAULT, "ggml_backend_tensor_set_2d");
    const get_2d get = (get_2d) dlsym(RTLD_DEFAULT, "ggml_backend_tensor_get_2d");
    if (set != NULL && get != NULL) {
        begin("TENSOR_2D", "set and get");
        ggml_backend_buffer_clear(ours.buffer, 0);
        memset(expected, 0, BYTES);
        fill_pattern(other, 4);
        set(ours.tensor, other, 10, 20, 30, 100, 50);
        uint8_t back[30 * 20] = {0};
        get(ours.tensor, back, 10, 20, 30, 100, 20);
        bool same = true;
        for (int row = 0; row < 30; row++) {
            memcpy(expected + 10 + row * 100, other + row * 50, 20);
            same = same && memcmp(back + row * 20, other + row * 50, 20) == 0;
        }
        result(same && holds(ours, expected), "");
    }
    free_bytes(ours);
    free_bytes(more);
    free_bytes(theirs);
}

static void run_event(void) {
    begin("EVENT", "record, wait, synchronize");
    ggml_backend_event_t event = ggml_backend_event_new(device);
    if (event == NULL) {
        result(false, "the device made no event");
        return;
    }
    struct bytes ours = new_bytes(tested);
    uint8_t expected[BYTES];
    fill_pattern(expected, 5);
    ggml_backend_tensor_set_async(tested, ours.tensor, expected, 0, BYTES);
    ggml_backend_event_record(event, tested);
    ggml_backend_event_wait(tested, event);
    ggml_backend_event_synchronize(event);
    result(holds(ours, expected), "");
    ggml_backend_event_free(event);
    free_bytes(ours);
}

/* out = W1 (W0 x + bias0 + bias1): the products and the first sum on one backend, the second sum on the CPU. */
enum { SCHED_WIDTH = 64, SCHED_TOKENS = 5, SCHED_ROUNDS = 4 };

struct scheduled_graph {
    struct ggml_context * weights;
    struct ggml_context * rest;
    ggml_backend_buffer_t buffer;
    ggml_backend_sched_t sched;
    struct ggml_tensor * x;
    struct ggml_tensor * out;
    struct ggml_cgraph * graph;
    int splits;
};

/* Builds, and fills the weights with the same numbers each time. False without memory. */
static bool build_scheduled(struct scheduled_graph * g, ggml_backend_t main_backend) {
    memset(g, 0, sizeof(*g));
    g->weights = new_context();
    g->rest = new_context();
    struct ggml_tensor * leaves[4] = {
        ggml_new_tensor_2d(g->weights, GGML_TYPE_Q8_0, SCHED_WIDTH, SCHED_WIDTH),
        ggml_new_tensor_2d(g->weights, GGML_TYPE_F16, SCHED_WIDTH, SCHED_WIDTH),
        ggml_new_tensor_1d(g->weights, GGML_TYPE_F32, SCHED_WIDTH),
        ggml_new_tensor_1d(g->weights, GGML_TYPE_F32, SCHED_WIDTH)};
    g->buffer = ggml_backend_alloc_ctx_tensors(g->weights, main_backend);
    if (g->buffer == NULL) {
        return false;
    }
    ggml_backend_buffer_set_usage(g->buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    random_state = 99;
    for (int i = 0; i < COUNT(leaves); i++) {
        void * data = random_data(leaves[i]);
        ggml_backend_tensor_set(leaves[i], data, 0, ggml_nbytes(leaves[i]));
        free(data);
    }
    g->x = ggml_new_tensor_2d(g->rest, GGML_TYPE_F32, SCHED_WIDTH, SCHED_TOKENS);
    ggml_set_input(g->x);
    struct ggml_tensor * first = ggml_add(g->rest, ggml_mul_mat(g->rest, leaves[0], g->x), leaves[2]);
    struct ggml_tensor * second = ggml_add(g->rest, first, leaves[3]);
    g->out = ggml_mul_mat(g->rest, leaves[1], second);
    ggml_set_output(g->out);
    g->graph = ggml_new_graph(g->rest);
    ggml_build_forward_expand(g->graph, g->out);

    ggml_backend_t backends[2] = {main_backend, reference};
    const int count = main_backend == reference ? 1 : 2;
    g->sched = ggml_backend_sched_new(backends, NULL, count, GGML_DEFAULT_GRAPH_SIZE, false, true);
    ggml_backend_sched_set_tensor_backend(g->sched, first, main_backend);
    ggml_backend_sched_set_tensor_backend(g->sched, second, reference);
    ggml_backend_sched_set_tensor_backend(g->sched, g->out, main_backend);
    const bool good = ggml_backend_sched_alloc_graph(g->sched, g->graph);
    g->splits = ggml_backend_sched_get_n_splits(g->sched);
    return good;
}

static void free_scheduled(struct scheduled_graph * g) {
    ggml_backend_sched_free(g->sched);
    ggml_backend_buffer_free(g->buffer);
    ggml_free(g->rest);
    ggml_free(g->weights);
}

/* Several times the same graph with other inputs, as in decoding, through ggml's scheduler. */
static void run_scheduled(void) {
    begin("SCHED", "device, CPU, device");
    struct scheduled_graph ours;
    struct scheduled_graph theirs;
    bool ran = build_scheduled(&ours, tested);
    ran = build_scheduled(&theirs, reference) && ran;
    double worst = 0.0;
    for (int round = 0; round < SCHED_ROUNDS && ran; round++) {
        void * x = random_data(ours.x);
        ggml_backend_tensor_set(ours.x, x, 0, ggml_nbytes(ours.x));
        ggml_backend_tensor_set(theirs.x, x, 0, ggml_nbytes(theirs.x));
        free(x);
        ran = ggml_backend_sched_graph_compute(ours.sched, ours.graph) == GGML_STATUS_SUCCESS;
        ran = ggml_backend_sched_graph_compute(theirs.sched, theirs.graph) == GGML_STATUS_SUCCESS && ran;
        float * given = numbers_of(ours.out);
        float * expected = numbers_of(theirs.out);
        const double error = nmse(given, expected, ggml_nelements(ours.out));
        if (!(error <= worst)) {
            worst = error;
        }
        free(given);
        free(expected);
    }
    if (!ran) {
        result(false, "no memory, or a graph failed");
    } else if (ours.splits != 3) {
        char detail[64];
        snprintf(detail, sizeof(detail), "%d splits and not 3", ours.splits);
        result(false, detail);
    } else {
        result_nmse(worst, LIMIT_MUL_MAT);
    }
    free_scheduled(&ours);
    free_scheduled(&theirs);
}

/* Programs load all backends more than once. Old versions of ggml then list a device twice, so what counts is that the
 * backend gives the same device each time. */
static void run_reload(const char * library) {
    begin("RELOAD", "the same library twice");
    bool same = ggml_backend_load(library) != NULL;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        ggml_backend_dev_t other = ggml_backend_dev_get(i);
        same = same && (other == device || strcmp(ggml_backend_dev_name(other), ggml_backend_dev_name(device)) != 0);
    }
    result(same, "");
}

int main(int argc, char ** argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: abi_test LIBRARY DEVICE\n");
        return 2;
    }
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == NULL) {
        ggml_backend_load_all(); /* a ggml whose CPU backend is a library of its own */
    }
    reference = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, NULL);
    if (reference == NULL) {
        fprintf(stderr, "abi_test: this ggml has no CPU backend\n");
        return 2;
    }
    if (ggml_backend_load(argv[1]) == NULL) {
        fprintf(stderr, "abi_test: ggml %s does not load %s\n", ggml_version(), argv[1]);
        return 2;
    }
    device = ggml_backend_dev_by_name(argv[2]);
    tested = device == NULL ? NULL : ggml_backend_dev_init(device, NULL);
    if (tested == NULL) {
        fprintf(stderr, "abi_test: no device %s in ggml %s, or it does not start\n", argv[2], ggml_version());
        return 2;
    }
    printf("ggml %s\n", ggml_version());
    run_sums();
    run_products();
    run_memory();
    run_event();
    run_scheduled();
    run_reload(argv[1]);
    ggml_backend_free(tested);
    ggml_backend_free(reference);
    printf("  %d/%d tests passed\n", passed, cases);
    printf("  Backend %s: %s\n", argv[2], passed == cases ? "OK" : "FAIL");
    return passed == cases ? 0 : 1;
}
