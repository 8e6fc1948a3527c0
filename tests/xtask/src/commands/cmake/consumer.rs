//! Another CMake project that uses the backend (`tests/xtask/cmake-consumer`).

use super::installation::{Installation, same_path};
use super::{Setup, sources};
use crate::commands::abi;
use crate::commands::abi::sources::Sources;
use crate::process::{self, run_helper};
use crate::tools::{argument, run_cmake};
use crate::workspace;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

pub struct Consumer {
    build: PathBuf,
}

impl Consumer {
    pub fn of_package(setup: &Setup, installation: &Installation) -> Result<Self> {
        let build = setup.work.path().join("with-package");
        let wants = format!("-DCONSUMER_WANTS={}", env!("CARGO_PKG_VERSION"));
        let prefix = argument("-DCMAKE_PREFIX_PATH=", &installation.prefix);
        run_cmake(configure(setup, &build)?.arg(prefix).arg(wants)).context("find_package(ggml-hsa) fails")?;
        let said = fs::read_to_string(build.join("package.txt")).context("the project wrote no package.txt")?;
        check_variables(&said, installation)?;
        Ok(Self { build })
    }

    /// It has the sources as a part of itself.
    pub fn of_sources(setup: &Setup) -> Result<Self> {
        let build = setup.work.path().join("with-sources");
        let sources = argument("-DCONSUMER_SOURCES=", &sources());
        run_cmake(configure(setup, &build)?.arg(sources).args(setup.cargo_settings()))
            .context("add_subdirectory fails")?;
        Ok(Self { build })
    }

    /// Its programs are built, open the library and are linked with it.
    pub fn check(&self, setup: &Setup) -> Result<String> {
        run_cmake(&mut setup.build(&self.build)).context("the project does not build")?;
        let mut open = Command::new(self.build.join("open"));
        process::clear_settings(&mut open);
        let opened = run_helper(&mut open, LIMIT).context("a program that opens the library fails")?;
        if opened != "score 1\nbackend none\n" {
            bail!("a program that opens the library printed {opened:?}");
        }
        let mut link = setup.session.testbed.command_for(&self.build.join("link"));
        link.env("GGML_HSA_DEVICES", "mock:aie2p?devices=2");
        setup.session.kernels(&mut link);
        let linked = run_helper(&mut link, LIMIT).context("a program that is linked with the library fails")?;
        check_linked(&linked)?;
        Ok(linked.lines().next().unwrap_or_default().to_owned())
    }
}

pub fn wrong_version(setup: &Setup, installation: &Installation) -> Result<String> {
    let mut command = configure(setup, &setup.work.path().join("wrong-version"))?;
    command.arg(argument("-DCMAKE_PREFIX_PATH=", &installation.prefix)).arg("-DCONSUMER_WANTS=99.0");
    match run_cmake(&mut command) {
        Ok(_) => bail!("find_package(ggml-hsa 99.0) accepted version {}", env!("CARGO_PKG_VERSION")),
        Err(error) => {
            let text = error.to_string();
            let wanted = ["99.0", env!("CARGO_PKG_VERSION")];
            if wanted.iter().all(|version| text.contains(version)) {
                return Ok("rejected, naming both versions".to_owned());
            }
            bail!("the message does not name both versions, {} and {}:\n{text}", wanted[0], wanted[1])
        }
    }
}

/// The command that configures the project; the testbed has no headers of ggml, those of a release serve.
fn configure(setup: &Setup, build: &Path) -> Result<Command> {
    let [.., version] = abi::CRATE_VERSIONS;
    let headers = Sources::fetch(version, &abi::home().join(version).join("fetch"), setup.offline)?;
    let testbed = &setup.session.testbed;
    let mut libraries = OsString::from("-DCONSUMER_GGML=");
    libraries.push(testbed.library("libggml.so.0")?);
    libraries.push(";");
    libraries.push(testbed.library("libggml-base.so.0")?);
    let mut command = setup.configure(&workspace::root().join("tests/xtask/cmake-consumer"), build);
    command.arg(argument("-DCONSUMER_HEADERS=", &headers.folder.join("include"))).arg(libraries);
    Ok(command)
}

/// The variables `find_package` set, in lines `NAME=VALUE`.
fn check_variables(said: &str, installation: &Installation) -> Result<()> {
    let value = |name: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        line.with_context(|| format!("the project wrote no {name}: {said}"))
    };
    if value("version")? != env!("CARGO_PKG_VERSION") {
        bail!("the package has version {}, and this is {}", value("version")?, env!("CARGO_PKG_VERSION"));
    }
    same_path("library", value("library")?, &installation.library())?;
    for (variable, folder) in
        [("backend_dir", "lib"), ("include_dir", "include"), ("bin_dir", "bin"), ("data_dir", "share/ggml-hsa")]
    {
        same_path(variable, value(variable)?, &installation.prefix.join(folder))?;
    }
    same_path("gen_kernels", value("gen_kernels")?, &installation.program("ggml-hsa-gen-kernels"))
}

/// What the linked program prints with two simulated devices.
fn check_linked(text: &str) -> Result<()> {
    let device = |number: u8| format!("HSA{number}: Simulated NPU (aie2p), memory HSA{number}, ours yes, free known");
    let wanted = [
        "backend HSA, devices 2".to_owned(),
        device(0),
        device(1),
        "host memory none".to_owned(),
        "beyond the last: none".to_owned(),
    ];
    if text.lines().eq(wanted.iter().map(String::as_str)) {
        return Ok(());
    }
    bail!("the linked program should print\n{}\nbut printed\n{text}", wanted.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_is_missing_or_wrong_is_named() {
        let installation = Installation::at("/p");
        let good = format!(
            "version={}\nlibrary=/p/lib/libggml-hsa.so\nbackend_dir=/p/lib\ninclude_dir=/p/include\nbin_dir=/p/bin\n\
             gen_kernels=/p/bin/ggml-hsa-gen-kernels\ndata_dir=/p/share/ggml-hsa\n",
            env!("CARGO_PKG_VERSION")
        );
        check_variables(&good, &installation).unwrap();
        let error = check_variables(&good.replace("bin_dir=/p/bin", "bin_dir=/q"), &installation).unwrap_err();
        assert!(error.to_string().contains("bin_dir is /q"), "{error}");
        let error = check_variables(&good.replace("library=", "lib="), &installation).unwrap_err();
        assert!(error.to_string().contains("no library"), "{error}");
    }

    #[test]
    fn a_device_that_does_not_start_is_seen() {
        assert!(check_linked("backend HSA, devices 0\nhost memory none\nbeyond the last: none\n").is_err());
    }
}
