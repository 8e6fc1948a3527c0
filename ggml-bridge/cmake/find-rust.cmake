# Finds cargo and rustc for CMakeLists.txt, and says what to do where they are missing or too old.
#
# Sets the cache variables GGML_HSA_CARGO and GGML_HSA_RUSTC. Needs ggml_hsa_workspace and ggml_hsa_rust_version.

set(ggml_hsa_get_rust
    "Install Rust ${ggml_hsa_rust_version} or newer from https://rustup.rs (it needs no root), or name other programs with \
-DGGML_HSA_CARGO=PATH and -DGGML_HSA_RUSTC=PATH. -DGGML_HSA=OFF leaves the backend out.")

foreach(program cargo rustc)
    string(TOUPPER "GGML_HSA_${program}" variable)
    # rustup puts its programs there, and a desktop's menu knows nothing of the shell's PATH.
    find_program(${variable} ${program} HINTS ENV CARGO_HOME PATHS "$ENV{HOME}/.cargo" PATH_SUFFIXES bin
        DOC "ggml-hsa: the ${program} to build with")
    if(NOT ${variable})
        message(FATAL_ERROR "ggml-hsa: there is no ${program} in PATH, CARGO_HOME or ~/.cargo/bin. ${ggml_hsa_get_rust}")
    endif()
    # In the workspace, where a toolchain file may choose the version.
    execute_process(COMMAND "${${variable}}" --version WORKING_DIRECTORY "${ggml_hsa_workspace}"
        RESULT_VARIABLE ggml_hsa_code OUTPUT_VARIABLE ggml_hsa_answer ERROR_VARIABLE ggml_hsa_complaint
        OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)
    if(NOT ggml_hsa_code STREQUAL "0" OR NOT ggml_hsa_answer MATCHES "^${program} ([0-9]+[0-9.]*)")
        message(FATAL_ERROR
            "ggml-hsa: `${${variable}} --version` should name a version and ended with '${ggml_hsa_code}': "
            "${ggml_hsa_answer}${ggml_hsa_complaint}. ${ggml_hsa_get_rust}")
    endif()
    if(CMAKE_MATCH_1 VERSION_LESS ggml_hsa_rust_version)
        message(FATAL_ERROR
            "ggml-hsa: ${${variable}} is version ${CMAKE_MATCH_1}, and ${ggml_hsa_rust_version} or newer is needed. "
            "${ggml_hsa_get_rust}")
    endif()
endforeach()
message(STATUS "ggml-hsa: building with ${GGML_HSA_CARGO} (${ggml_hsa_answer})")
