//! `libhsa_stand_in.so`: an HSA runtime for tests, see the package `hsa-stand-in`. It is no ROCR.

hsa_stand_in_core::library!(simulated_kernels::executor());
