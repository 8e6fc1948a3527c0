/* Is linked with libggml-hsa.so and uses every function of ggml-hsa.h. */
#include "ggml-hsa.h"

int main(void) {
    ggml_backend_reg_t reg = ggml_backend_hsa_reg();
    if (reg == NULL) {
        fprintf(stderr, "no backend\n");
        return 1;
    }
    int32_t count = ggml_backend_hsa_get_device_count();
    printf("backend %s, devices %d\n", ggml_backend_reg_name(reg), (int) count);
    for (int32_t device = 0; device < count; device++) {
        char description[128];
        size_t free, total;
        ggml_backend_hsa_get_device_description(device, description, sizeof description);
        ggml_backend_hsa_get_device_memory(device, &free, &total);
        ggml_backend_t backend = ggml_backend_hsa_init(device);
        if (backend == NULL) {
            fprintf(stderr, "device %d does not start\n", (int) device);
            return 1;
        }
        ggml_backend_buffer_type_t memory = ggml_backend_hsa_buffer_type(device);
        printf("%s: %s, memory %s, ours %s, free %s\n", ggml_backend_name(backend), description,
               ggml_backend_buft_name(memory), ggml_backend_is_hsa(backend) ? "yes" : "no",
               free > 0 && free <= total ? "known" : "unknown");
        ggml_backend_free(backend);
    }
    ggml_backend_buffer_type_t host = ggml_backend_hsa_host_buffer_type();
    printf("host memory %s\n", host ? ggml_backend_buft_name(host) : "none");
    printf("beyond the last: %s\n", ggml_backend_hsa_init(count) || ggml_backend_hsa_device(-1) ? "made" : "none");
    return 0;
}
