"""Finding the tools, and which generation they are of."""

import shutil
import unittest

from support import DOUBLES, IRON, Case, install
from toolchain import RELEASES, flags_of_help, flags_of_version


class VersionsTest(unittest.TestCase):
    def test_generation_of_a_version(self):
        for version, flags in (
            ("1.3.0", "1.3"),
            ("1.3.1", "1.3"),
            ("1.4.0", "1.4"),
            ("1.4.5.dev3+g0a1b2c3", "1.4"),
            ("2.0.0", "1.4"),
            ("0.0.1.2026033104+e4f35d6", None),
            ("main", None),
        ):
            with self.subTest(version=version):
                self.assertEqual(flags_of_version(version), flags)

    def test_generation_of_a_help_text(self):
        self.assertEqual(flags_of_help("  --aie-generate-pdi - PDI\n  --pdi-name=<string>"), "1.3")
        self.assertEqual(flags_of_help("  --get=<name> - such as --get-xclbin\n  --pdi-name=<string>"), "1.4")
        # Builds between the two have both, and still the older names.
        self.assertEqual(flags_of_help("  --get=<name>\n  --aie-generate-pdi"), "1.3")
        self.assertIsNone(flags_of_help("  --pdi-name=<string>\n  --target=x"))

    def test_requirements_and_script_have_the_known_versions(self):
        script = (IRON / "env_setup.sh").read_text(encoding="utf-8")
        for release in RELEASES:
            lines = (IRON / release.requirements).read_text(encoding="utf-8").splitlines()
            self.assertIn(f"mlir_aie=={release.mlir_aie}", lines)
            self.assertIn(f"llvm-aie=={release.llvm_aie}", lines)
            page = f"--find-links https://github.com/Xilinx/mlir-aie/releases/expanded_assets/v{release.mlir_aie}"
            self.assertIn(page, lines)
            self.assertIn(f"{release.mlir_aie}) _iron_requirements={release.requirements} ;;", script)
            self.assertEqual(flags_of_version(release.mlir_aie), release.flags)
            document = (IRON.parents[1] / "docs" / "iron-toolchain.md").read_text(encoding="utf-8")
            self.assertIn(f"| {release.mlir_aie} | {release.llvm_aie} |", document)


class FindTest(Case):
    def test_a_complete_installation(self):
        for version, flags in (("1.3.1", "1.3"), ("1.4.4", "1.4")):
            installation = self.installation(version)
            code, report = installation.check()
            self.assertEqual((code, report["usable"], report["missing"], report["warnings"]), (0, True, [], []))
            self.assertEqual(report["imports"], {"numpy": True, "ml_dtypes": True, "aie.iron": True})
            self.assertEqual(
                report["tools"],
                {
                    "aiecc": str(installation.mlir_aie_root / "bin" / "aiecc"),
                    "peano": str(installation.peano),
                    "include": str(installation.mlir_aie_root / "include"),
                    "flags": flags,
                    "mlir_aie": version,
                    "llvm_aie": installation.llvm_aie,
                },
            )
            self.assertEqual([known["mlir_aie"] for known in report["known"]], ["1.3.1", "1.4.4"])

    def test_aiecc_is_found_beside_its_package_without_path(self):
        installation = self.installation()
        installation.environment["PATH"] = str(installation.root / "bin") + ":/usr/bin:/bin"
        _, report = installation.check("--text-only")
        self.assertEqual(report["tools"]["aiecc"], str(installation.mlir_aie_root / "bin" / "aiecc"))
        shutil.rmtree(installation.mlir_aie_root / "bin")
        code, report = installation.check("--text-only")
        self.assertEqual(code, 1)
        self.assertRegex(report["missing"][0], r"^aiecc was not found; tried: PATH, .*/mlir_aie/bin/aiecc.* mlir_aie has it$")

    def test_headers(self):
        installation = self.installation()
        elsewhere = self.folder / "elsewhere"
        (installation.mlir_aie_root / "include").rename(self.folder / "include")
        code, report = installation.check("--text-only")
        self.assertEqual(code, 1)
        self.assertRegex(report["missing"][0], "the C[+][+] headers of mlir_aie were not found; tried: .*/mlir_aie/include/aie_api")
        elsewhere.mkdir()
        (self.folder / "include").rename(elsewhere / "include")
        installation.environment["MLIR_AIE_INSTALL_DIR"] = str(elsewhere)
        _, report = installation.check("--text-only")
        self.assertEqual(report["tools"]["include"], str(elsewhere / "include"))

    def test_peano_in_irons_order(self):
        installation = self.installation()
        package = installation.mlir_aie_root / "python" / "aie"
        explicit = self.folder / "explicit"
        # From the last place to the first: each further one goes before those that are there.
        for place in (installation.peano, package.parent / "peano", package / "peano", explicit):
            for program in ("clang++", "opt", "llc", "ld.lld"):
                install(DOUBLES / "peano_double.py", place / "bin" / program)
            if place == explicit:
                installation.environment["PEANO_INSTALL_DIR"] = str(explicit)
            _, report = installation.check("--text-only")
            self.assertEqual(report["tools"]["peano"], str(place))
        self.assertRegex(report["tools"]["llvm_aie"], "^unknown .*explicit/bin/clang[+][+], [0-9]+ bytes, changed [0-9]+")

    def test_no_peano(self):
        installation = self.installation()
        installation.environment["PEANO_INSTALL_DIR"] = "/nowhere"
        code, report = installation.check()
        # The Peano of the package is not what was requested.
        self.assertEqual(code, 1)
        self.assertTrue(report["missing"][0].startswith("PEANO_INSTALL_DIR is /nowhere, where /nowhere/bin/clang++, "))
        del installation.environment["PEANO_INSTALL_DIR"]
        (installation.peano / "bin" / "llc").unlink()
        code, report = installation.check()
        self.assertEqual(code, 1)
        self.assertRegex(report["missing"][0], r"^Peano was not found; tried: PEANO_INSTALL_DIR \(not set\), .*/llvm-aie\. ")

    def test_an_unknown_version_is_used_with_a_warning(self):
        for version, double, flags in (("1.3.2", "1.3.1", "1.3"), ("1.5.0", "1.4.4", "1.4")):
            installation = self.installation(version)
            installation.environment["DOUBLE_IRON"] = double
            code, report = installation.check()
            self.assertEqual((code, report["tools"]["flags"]), (0, flags))
            self.assertEqual(
                report["warnings"],
                [
                    f"mlir_aie {version} is not among the versions known here (1.3.1, 1.4.4); "
                    "the nearest one's options are used"
                ],
            )

    def test_the_aiecc_that_runs_decides(self):
        installation = self.installation("1.3.1")
        installation.environment["DOUBLE_IRON"] = "1.4.4"
        _, report = installation.check()
        self.assertEqual(report["tools"]["flags"], "1.4")
        self.assertRegex(report["warnings"][0], "aiecc takes the options of IRON 1.4, but the installed mlir_aie is 1.3.1")

    def test_an_aiecc_of_another_installation_has_no_version(self):
        installation = self.installation("1.3.1")
        install(DOUBLES / "aiecc_double.py", self.folder / "own" / "bin" / "aiecc")
        installation.environment["PATH"] = f"{self.folder}/own/bin:{installation.environment['PATH']}"
        _, report = installation.check()
        self.assertRegex(report["tools"]["mlir_aie"], "^unknown .*/own/bin/aiecc, [0-9]+ bytes, changed [0-9]+")
        self.assertRegex(report["warnings"][0], "an mlir_aie whose version is not known is not among the versions known")

    def test_another_peano_than_pinned_is_told(self):
        _, report = self.installation("1.3.1", llvm_aie="22.0.0.7").check()
        self.assertEqual(
            report["warnings"], ["llvm-aie is 22.0.0.7; pinned with mlir_aie 1.3.1 is 21.0.0.2026050601+2c363ce"]
        )

    def test_an_aiecc_that_is_none(self):
        installation = self.installation("0.0.1.2026")
        aiecc = installation.mlir_aie_root / "bin" / "aiecc"
        aiecc.write_text("#!/bin/sh\necho hello\n", encoding="utf-8")
        code, report = installation.check()
        self.assertEqual(code, 1)
        self.assertRegex(report["missing"][0], "is of an unknown version: .*0.0.1.2026. Known: 1.3.1, 1.4.4$")
        aiecc.write_text("#!/no/such/interpreter\n", encoding="utf-8")
        code, report = installation.check()
        self.assertRegex(report["missing"][0], "aiecc does not run: .*No such file")

    def test_a_help_that_says_nothing_leaves_the_version(self):
        installation = self.installation("1.4.4")
        (installation.mlir_aie_root / "bin" / "aiecc").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        _, report = installation.check()
        self.assertEqual(report["tools"]["flags"], "1.4")
        self.assertRegex(report["warnings"][0], "lists neither spelling of the options; those of IRON 1.4 are used")

    def test_everything_that_is_missing_is_told(self):
        installation = self.installation()
        (installation.packages / "numpy.py").unlink()
        shutil.rmtree(installation.mlir_aie_root)
        code, report = installation.check()
        self.assertEqual((code, report["usable"], len(report["missing"])), (1, False, 3))
        self.assertEqual(report["imports"], {"numpy": False, "ml_dtypes": True, "aie.iron": False})


if __name__ == "__main__":
    unittest.main()
