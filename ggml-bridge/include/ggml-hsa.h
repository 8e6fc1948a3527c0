/* The ggml backend for AMD AI Engine NPUs, for programs that link libggml-hsa.so.
 *
 * Programs that load backends at run time, as llama.cpp does, need none of this: they are given the file, with
 * ggml_backend_load() or in GGML_BACKEND_PATH. The library itself is linked with no ggml. It finds the one of the program it
 * is in, so that a program that links it must link ggml too.
 *
 * The functions have the names of the C++ backend ggml-hsa. All but ggml_backend_hsa_reg() are made of ggml's public functions,
 * so that a program compiled with one ggml does not fix its version in the library. They may be called from any thread.
 * Devices count from 0, in the order of GGML_HSA_DEVICES. Not offered are buffers split over devices, and registering the
 * caller's memory as pinned: the scheduler passes such memory without it.
 */
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GGML_HSA_NAME "HSA"
#define GGML_HSA_MAX_DEVICES 16

/* The backend with its devices, the same one each time. NULL if the library does not know this ggml; it says why in ggml's
 * log. Without an NPU the backend has no device. It is not in ggml's own list before ggml_backend_register(). */
GGML_BACKEND_API ggml_backend_reg_t ggml_backend_hsa_reg(void);

/* How many devices there are. */
static inline int32_t ggml_backend_hsa_get_device_count(void) {
    ggml_backend_reg_t reg = ggml_backend_hsa_reg();
    return reg ? (int32_t) ggml_backend_reg_dev_count(reg) : 0;
}

/* A device, or NULL if there is none of this number. */
static inline ggml_backend_dev_t ggml_backend_hsa_device(int32_t device) {
    if (device < 0 || device >= ggml_backend_hsa_get_device_count()) {
        return NULL;
    }
    return ggml_backend_reg_dev_get(ggml_backend_hsa_reg(), (size_t) device);
}

/* A stream of work on a device; the caller frees it with ggml_backend_free(). NULL if there is no such device. */
static inline ggml_backend_t ggml_backend_hsa_init(int32_t device) {
    ggml_backend_dev_t dev = ggml_backend_hsa_device(device);
    return dev ? ggml_backend_dev_init(dev, NULL) : NULL;
}

/* Whether `backend` is of this library. */
static inline bool ggml_backend_is_hsa(ggml_backend_t backend) {
    ggml_backend_dev_t dev = backend ? ggml_backend_get_device(backend) : NULL;
    return dev && ggml_backend_dev_backend_reg(dev) == ggml_backend_hsa_reg();
}

/* The memory of a device, or NULL if there is no such device. */
static inline ggml_backend_buffer_type_t ggml_backend_hsa_buffer_type(int32_t device) {
    ggml_backend_dev_t dev = ggml_backend_hsa_device(device);
    return dev ? ggml_backend_dev_buffer_type(dev) : NULL;
}

/* Host memory the first device reaches without a copy, or NULL if it has no such type. */
static inline ggml_backend_buffer_type_t ggml_backend_hsa_host_buffer_type(void) {
    ggml_backend_dev_t dev = ggml_backend_hsa_device(0);
    return dev ? ggml_backend_dev_host_buffer_type(dev) : NULL;
}

/* Writes a device's name for people, cut to `size` bytes with the final 0; empty if there is no such device. */
static inline void ggml_backend_hsa_get_device_description(int32_t device, char * description, size_t size) {
    ggml_backend_dev_t dev = ggml_backend_hsa_device(device);
    snprintf(description, size, "%s", dev ? ggml_backend_dev_description(dev) : "");
}

/* Free and total memory of a device in bytes; both 0 if there is no such device. */
static inline void ggml_backend_hsa_get_device_memory(int32_t device, size_t * free, size_t * total) {
    ggml_backend_dev_t dev = ggml_backend_hsa_device(device);
    *free = *total = 0;
    if (dev) {
        ggml_backend_dev_memory(dev, free, total);
    }
}

#ifdef __cplusplus
}
#endif
