/* Opens libggml-hsa.so as ggml's loader does and asks for its score. Without a ggml in the process the library must refuse to
 * start, with a message and without a crash. */
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
    void *library = dlopen(GGML_HSA_FILE, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*score)(void);
    void *(*init)(void);
    *(void **)&score = dlsym(library, "ggml_backend_score");
    *(void **)&init = dlsym(library, "ggml_backend_init");
    if (score == NULL || init == NULL) {
        fprintf(stderr, "%s lacks a function of a ggml backend\n", GGML_HSA_FILE);
        return 1;
    }
    printf("score %d\nbackend %s\n", score(), init() == NULL ? "none" : "made");
    return 0;
}
