//! Programs of the array: tiles, streams, buffer descriptors and locks as a PDI, and a dispatch as an instruction stream.
