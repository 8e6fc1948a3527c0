//! The environment variables of the project's commands.

aie_hal::settings! {
    prefix "AIE_TESTBED";

    section "Of the project's commands" {
        /// Where the stock programs, models and libraries of the tests are.
        AIE_TESTBED: "a directory" => "`target/testbed`";
        /// The Debian archive that the tests' packages come from, also that of an earlier day.
        AIE_TESTBED_MIRROR: "an address" => "the machine's own";
        /// The C compiler of the tests.
        CC: "a program" => "`cc`";
        /// The C++ compiler of the tests.
        CXX: "a program" => "`c++`";
        /// The cargo that builds what is tested; cargo itself sets it.
        CARGO: "a program" => "`cargo`";
        /// Set, to whatever value: no colours in tables.
        NO_COLOR: "any" => "colours on a terminal", read by ["xtask", "aie-ggml-cli"];
    }
}
